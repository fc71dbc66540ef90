"""Preprocessing with Modin: a pandas DataFrame whose partitions live on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator

from core import ProcessorSpec, hookimpl

__all__ = ["register_processor"]


@hookimpl
def register_processor() -> Iterator[ProcessorSpec]:
    yield ProcessorSpec(
        name="modin",
        summary="In memory, on Ray: the cluster this process is connected to, or one of this machine.",
        implementation="core_modin.processor:ModinProcessor",
        needs=("modin", "ray"),
    )
