"""Sharded data-parallel training with torch's FSDP2."""

from __future__ import annotations

from collections.abc import Iterator

from core import StrategySpec, hookimpl
from core_fsdp.options import FSDPOptions, MixedPrecision

__all__ = ["FSDPOptions", "MixedPrecision", "register_strategy"]


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="fsdp",
        summary="Parameters, gradients and optimiser state in shards, one on each worker, gathered block by block.",
        implementation="core_fsdp.strategy:FSDP",
        options=FSDPOptions,
    )
