"""What core can do with no plugin installed, registered the way a plugin would."""

from __future__ import annotations

from collections.abc import Iterator

from core.hookspecs import hookimpl
from core.specs import LoaderSpec, ProcessorSpec, StrategySpec


@hookimpl
def register_processor() -> Iterator[ProcessorSpec]:
    yield ProcessorSpec(
        name="pandas",
        summary="In this process, one partition of the dataset after the other.",
        implementation="core.processors.pandas:PandasProcessor",
    )


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="single",
        summary="One process, one device.",
        implementation="core.strategy:Strategy",
        distributed=False,
        exact=True,
    )


@hookimpl
def register_loader() -> Iterator[LoaderSpec]:
    yield LoaderSpec(
        name="memory",
        summary="Rows in memory, once for the workers of a node, whole or window by window.",
        implementation="core.loaders.memory:MemoryLoader",
    )
    yield LoaderSpec(
        name="ray",
        summary="Rows in the object store of a Ray cluster, read by Ray Data, whole or window by window.",
        implementation="core.loaders.ray:RayLoader",
        needs=("ray",),
        remedy="pip install 'core[ray]'",
    )
