"""The keys of `strategy: {type: horovod}`, with Horovod's meanings and defaults."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from core import GroupOptions


def _elsewhere(_: Any, field: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None:
        raise ValueError("is decided by `trainer.gradient_accumulation_steps`: write the number there")


@attrs.frozen(kw_only=True)
class HorovodOptions(GroupOptions):
    """How Horovod exchanges gradients."""

    compression: Literal["none", "fp16"] = attrs.field(
        default="none",
        metadata={"doc": "`fp16` sends half of the bytes, and rounds gradients to 11 bits."},
    )
    backward_passes_per_step: int | None = attrs.field(
        default=None,
        validator=_elsewhere,
        metadata={
            "doc": "Set as `trainer.gradient_accumulation_steps`: a worker adds up the gradients of a step's "
            "micro-batches, and they are exchanged once."
        },
    )
    fusion_threshold_mb: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(0)),
        metadata={"doc": "Megabytes of gradients sent at once; null is HOROVOD_FUSION_THRESHOLD, or 25."},
    )
    cycle_time_ms: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.gt(0)),
        metadata={
            "doc": "Milliseconds after which a worker that sends nothing looks what others send; null is "
            "HOROVOD_CYCLE_TIME, or 5."
        },
    )
