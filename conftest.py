"""Settings that must stand before anything imports torch, and fixtures that tests of every area share."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

import pytest

# Idle OpenMP threads spin by default, which starves the other workers of a small machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A test names its backend; a cluster that happens to run here, or that another test has started, shall not be found.
os.environ["RAY_ADDRESS"] = "local"


@pytest.fixture
def start_up_seconds() -> Callable[[Callable[[], object]], float]:
    """What a process started by `run` costs, best of five: its CPU time, which is its wall time on an idle machine."""

    def measure(run: Callable[[], object]) -> float:
        def once() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        return min(once() for _ in range(5))

    return measure


@pytest.fixture(scope="session")
def step_losses() -> type[Any]:
    """A callback that remembers the loss of every step."""
    import core

    class StepLosses(core.Callback):
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_batch_end(self, *, loss: float, **details: Any) -> None:
            self.losses.append(loss)

    return StepLosses
