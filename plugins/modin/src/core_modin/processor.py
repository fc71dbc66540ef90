"""Modin on Ray as an engine of preprocessing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import modin.config
import pandas as pd
import pyarrow as pa
import ray

from core.errors import CoreError
from core.processor import Processor, Source
from core.specs import ProcessorOptions

T = TypeVar("T")

OBJECT_STORE_BYTES = 1 << 31
"""Most memory of a cluster's objects where this processor starts it; Ray spills the rest to disk."""


class ModinProcessor(Processor[Any]):
    """Eager: a `modin.pandas.DataFrame` on the Ray cluster that this process is connected to.

    Where there is none, one is started on this machine, and stopped by `close`.
    """

    def __init__(self, options: ProcessorOptions) -> None:
        super().__init__(options)
        modin.config.Engine.put("Ray")
        self._started = not ray.is_initialized()
        if self._started:
            _start_ray()

    def open(self, source: Source) -> Any:
        # Imported when there is a cluster: Modin would start one of its own, with a store as large as half the memory.
        from modin.distributed.dataframe.pandas import from_partitions

        count = self.options.parallelism
        read = ray.remote(_read).options(num_returns=2)
        work = [read.remote(block) for block in source.blocks(count)]
        lengths = _values([length for _, length in work])
        # Modin makes a frame without rows of one without partitions, and loses the columns' types.
        filled = [part for (part, _), length in zip(work, lengths, strict=True) if length] or [work[0][0]]
        return from_partitions(filled, axis=0)

    def map(self, frame: Any, function: Callable[[pa.Table, int], T]) -> list[T]:
        from modin.distributed.dataframe.pandas import unwrap_partitions

        parts = unwrap_partitions(frame, axis=0)
        lengths = _values([ray.remote(_length).remote(part) for part in parts])
        first_rows = itertools.accumulate(lengths[:-1], initial=0)
        shared = ray.put(function)  # once for the cluster, not with every task
        apply = ray.remote(_apply)
        return _values([apply.remote(shared, part, first) for part, first in zip(parts, first_rows, strict=True)])

    def close(self) -> None:
        if self._started:
            ray.shutdown()
            self._started = False


def _start_ray() -> None:
    import logging

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ray.init(
        address="local",
        object_store_memory=min(OBJECT_STORE_BYTES, total // 4),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _read(block: Callable[[], pa.Table]) -> tuple[Any, Any]:
    """A block as a pandas DataFrame, and its number of rows."""
    try:
        table = block()
    except CoreError as error:
        return None, _Failed(error)
    return table.to_pandas(types_mapper=pd.ArrowDtype), table.num_rows


def _length(part: pd.DataFrame) -> int:
    return len(part)


def _apply(function: Callable[[pa.Table, int], Any], part: pd.DataFrame, first_row: int) -> Any:
    try:
        return function(pa.table({name: part[name].array.__arrow_array__() for name in part.columns}), first_row)
    except CoreError as error:
        return _Failed(error)


class _Failed:
    """A mistake of the user's: it comes home as a value, so that the first in row order is told."""

    def __init__(self, error: CoreError) -> None:
        self.error = error


def _values(results: Sequence[Any]) -> list[Any]:
    """What the tasks returned, in order; the first error is raised."""
    values = []
    for result in results:
        value = ray.get(result)
        if isinstance(value, _Failed):
            raise value.error
        values.append(value)
    return values
