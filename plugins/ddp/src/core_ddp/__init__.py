"""Data-parallel training with torch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from core import StrategySpec, hookimpl
from core_ddp.options import DDPOptions

__all__ = ["DDPOptions", "register_strategy"]


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="ddp",
        summary="A replica of the model on each worker, gradients averaged while backward runs.",
        implementation="core_ddp.strategy:DDP",
        options=DDPOptions,
        exact=True,
    )
