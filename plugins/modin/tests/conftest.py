from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("modin")


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[None]:
    """One small Ray cluster for all tests: starting one takes longer than they do."""
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield
    ray.shutdown()
