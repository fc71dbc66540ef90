"""The keys of `strategy: {type: localsgd}`."""

from __future__ import annotations

import attrs

from core import GroupOptions


@attrs.frozen(kw_only=True)
class LocalSGDOptions(GroupOptions):
    """How far workers go on their own."""

    period: int = attrs.field(
        default=8,
        validator=attrs.validators.ge(1),
        metadata={"doc": "Steps between two averages; 1 exchanges gradients instead, as ordinary data parallelism."},
    )
    average_optimizer: bool = attrs.field(
        default=True,
        metadata={"doc": "Average what the optimiser keeps too, such as Adam's moments."},
    )
