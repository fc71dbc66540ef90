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
        summary="Batches sliced from tensors that hold the worker's data, whole or window by window.",
        implementation="core.loaders.memory:MemoryLoader",
    )
