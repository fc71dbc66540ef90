"""The keys of `processor: {type: dask}`."""

from __future__ import annotations

from typing import Literal

import attrs

from core import ProcessorOptions


@attrs.frozen(kw_only=True)
class DaskOptions(ProcessorOptions):
    """Where the partitions are worked on."""

    address: str | None = attrs.field(
        default=None,
        metadata={
            "doc": "Scheduler of a running Dask cluster, such as tcp://10.0.0.1:8786, whose workers see the same "
            "files; it goes before `scheduler`."
        },
    )
    scheduler: Literal["threads", "processes"] | None = attrs.field(
        default=None,
        metadata={
            "doc": "Workers on this machine. Threads start at once and share memory; processes also run what holds "
            "Python's lock, such as cutting text into words, side by side. null: the Ray cluster that this process "
            "is connected to, else threads."
        },
    )
