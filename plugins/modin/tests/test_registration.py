from __future__ import annotations

from core.registry import registry


def test_modin_is_installed_and_describes_itself():
    spec = registry().spec("processor", "modin")

    assert spec.needs == ("modin", "ray")
    assert "Ray" in spec.summary
