"""What every strategy must do: all of it where state is divided, and where everything is divided and offloaded."""

from __future__ import annotations

from typing import ClassVar

import pytest

from core.testing.strategy import StrategyConformance
from core.testing.workers import Launcher


class Conformance(StrategyConformance):
    strategy = "deepspeed"
    world_sizes = (2,)

    @pytest.fixture(scope="class")
    @classmethod
    def launcher(cls, deepspeed_launcher: Launcher) -> Launcher:
        return deepspeed_launcher


@pytest.mark.slow
class TestStage1(Conformance):
    options: ClassVar = {"zero_optimization": {"stage": 1}}


@pytest.mark.slow
class TestStage3Offloaded(Conformance):
    options: ClassVar = {
        "zero_optimization": {
            "stage": 3,
            "stage3_param_persistence_threshold": 0,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "offload_param": {"device": "cpu"},
        }
    }
