"""ZeRO training with DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator

from core import StrategySpec, hookimpl
from core_deepspeed.options import DeepSpeedOptions

__all__ = ["DeepSpeedOptions", "register_strategy"]


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="deepspeed",
        summary="ZeRO: optimiser state, gradients and weights divided among the workers, or moved to the CPU.",
        implementation="core_deepspeed.strategy:DeepSpeed",
        options=DeepSpeedOptions,
        needs=("deepspeed",),
    )
