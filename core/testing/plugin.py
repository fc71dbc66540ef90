"""What pytest loads wherever core is installed. It imports nothing heavy until a test asks for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("core.testing.loader", "core.testing.processor", "core.testing.strategy")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster of this machine with two CPUs, shared by all tests: starting one takes longer than most of them.

    Tests that want it are skipped where Ray is not installed.
    """
    ray = pytest.importorskip("ray")
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
