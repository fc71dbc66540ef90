from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def dask_cluster() -> Iterator[str]:
    """The address of a Dask scheduler with two workers."""
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": "1GB"}
    with distributed.LocalCluster(**settings) as cluster:
        yield cluster.scheduler_address
