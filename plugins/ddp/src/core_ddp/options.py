"""The keys of `strategy: {type: ddp}`, with torch's meanings and defaults."""

from __future__ import annotations

import attrs

from core import GroupOptions


@attrs.frozen(kw_only=True)
class DDPOptions(GroupOptions):
    """Arguments of `torch.nn.parallel.DistributedDataParallel`."""

    find_unused_parameters: bool = attrs.field(
        default=False,
        metadata={"doc": "Look for parameters that a step did not use; needed where which ones varies, and slower."},
    )
    static_graph: bool = attrs.field(
        default=False,
        metadata={"doc": "Promise that every step uses the same parameters in the same way."},
    )
    bucket_cap_mb: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={"doc": "Megabytes of gradients sent at once; null is torch's own choice, 25."},
    )
    gradient_as_bucket_view: bool = attrs.field(
        default=False,
        metadata={"doc": "Keep gradients inside the send buffers: one copy of them less in memory."},
    )
