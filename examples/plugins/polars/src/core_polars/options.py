"""The keys of `processor: {type: polars}`."""

from __future__ import annotations

import attrs

from core import ProcessorOptions


@attrs.frozen(kw_only=True)
class PolarsOptions(ProcessorOptions):
    """How many partitions are worked on at once."""

    threads: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={"doc": "Partitions that are worked on at once; null for one a CPU."},
    )
