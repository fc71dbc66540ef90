from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def cluster(ray_cluster: None) -> None:
    """All tests share one cluster."""
