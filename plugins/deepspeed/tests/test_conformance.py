"""What every strategy must do, at each stage."""

from __future__ import annotations

from typing import ClassVar

import pytest

from core.testing.strategy import StrategyConformance


@pytest.mark.slow
class TestStage0(StrategyConformance):
    strategy = "deepspeed"


@pytest.mark.slow
class TestStage1(StrategyConformance):
    strategy = "deepspeed"
    options: ClassVar = {"zero_optimization": {"stage": 1}}
    world_sizes = (2, 3)


@pytest.mark.slow
class TestStage2Offloaded(StrategyConformance):
    strategy = "deepspeed"
    options: ClassVar = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    world_sizes = (2,)


@pytest.mark.slow
class TestStage3(StrategyConformance):
    strategy = "deepspeed"
    options: ClassVar = {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}


@pytest.mark.slow
class TestStage3OffloadedWithSmallWeightsKept(StrategyConformance):
    strategy = "deepspeed"
    options: ClassVar = {
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "offload_param": {"device": "cpu"},
        }
    }
    world_sizes = (2,)
