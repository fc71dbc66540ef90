from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.config import load, loads
from core.errors import ConfigError, Problem


@pytest.fixture
def minimal() -> dict[str, Any]:
    return {
        "input_features": [{"name": "Age", "type": "number"}, {"name": "Sex", "type": "category"}],
        "output_features": [{"name": "Survived", "type": "binary"}],
    }


@pytest.fixture
def problems(minimal: dict[str, Any]) -> Callable[..., dict[str, Problem]]:
    """The problems of a config by path: of YAML text, or of the minimal config with some sections replaced."""

    def of(text: str | None = None, /, **settings: Any) -> dict[str, Problem]:
        options = {key: settings.pop(key) for key in ("overrides", "backend_option") if key in settings}
        if "backend_option" in options:
            options["backend"] = options.pop("backend_option")
        with pytest.raises(ConfigError) as caught:
            if text is None:
                load(minimal | settings, **options)
            else:
                loads(text, **options)
        found = {problem.path: problem for problem in caught.value.problems}
        assert len(found) == len(caught.value.problems), "a path is reported twice"
        return found

    return of
