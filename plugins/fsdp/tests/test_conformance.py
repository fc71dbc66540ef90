from __future__ import annotations

from typing import ClassVar

from core.testing.strategy import StrategyConformance


class TestFSDP(StrategyConformance):
    strategy = "fsdp"
    unused_parameters = True


class TestBlocksBySize(StrategyConformance):
    strategy = "fsdp"
    options: ClassVar = {"min_num_params": 20, "reshard_after_forward": True, "cpu_offload": True}
    world_sizes = (2,)
    unused_parameters = True


class TestOneBlock(StrategyConformance):
    strategy = "fsdp"
    options: ClassVar = {"min_num_params": 1_000_000, "reshard_after_forward": False}
    world_sizes = (2, 3)
    unused_parameters = True
