from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from core.testing.strategy import StrategyConformance
from core.testing.training import Plan, Step
from core.testing.workers import Launcher
from core.training.optimizers import OPTIMIZERS


class TestFSDP(StrategyConformance):
    strategy = "fsdp"
    unused_parameters = True

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_every_optimizer_updates_shards(self, launcher: Launcher, tmp_path: Path, optimizer: str) -> None:
        plan = Plan(optimizer=OPTIMIZERS[optimizer](), steps=[Step(rate=0.05, max_norm=1.0)] * 3)

        (found, _) = self.run(launcher, 2, tmp_path, plan)

        self.assert_equal(found.state["model"], self.expected(plan).state["model"])


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
