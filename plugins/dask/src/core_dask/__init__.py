"""Preprocessing with Dask: a part of the dataset at a time, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from core import ProcessorSpec, hookimpl
from core_dask.options import DaskOptions

__all__ = ["DaskOptions", "register_processor"]


@hookimpl
def register_processor() -> Iterator[ProcessorSpec]:
    yield ProcessorSpec(
        name="dask",
        summary="Out of core, a few partitions in memory at a time; on this machine, a Dask cluster or Ray.",
        implementation="core_dask.processor:DaskProcessor",
        options=DaskOptions,
        needs=("dask",),
    )
