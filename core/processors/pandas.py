"""The default engine: a pandas DataFrame in this process's memory, its slices worked on by threads."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import pandas as pd
import pyarrow as pa

from core.errors import DataError
from core.processor import Processor, Source

T = TypeVar("T")

PARTITION_ROWS = 1 << 18
"""Most rows of a partition where the config asks for no number of them."""
_SMALL = 1 << 15
"""Fewer rows than this are not worth a second partition."""


class PandasProcessor(Processor[pd.DataFrame]):
    """Eager, in memory. Arrow-backed columns, so that partitions are views; pyarrow and numpy let threads run."""

    def open(self, source: Source) -> pd.DataFrame:
        with _enough_memory(), self._executor() as executor:
            tables = list(executor.map(lambda read: read(), source.blocks(None)))
            return pa.concat_tables(tables).to_pandas(types_mapper=pd.ArrowDtype)

    def map(self, frame: pd.DataFrame, function: Callable[[pa.Table, int], T]) -> list[T]:
        edges = self._edges(len(frame))
        with _enough_memory(), self._executor() as executor:
            futures = [
                executor.submit(_apply, function, frame, start, stop) for start, stop in itertools.pairwise(edges)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _edges(self, rows: int) -> list[int]:
        count = self.options.parallelism
        if count is None:
            count = max(-(-rows // PARTITION_ROWS), _cpus() if rows > _SMALL else 1)
        count = max(1, min(count, rows))
        return [rows * index // count for index in range(count + 1)]

    def _executor(self) -> Executor:
        return ThreadPoolExecutor(_cpus(), thread_name_prefix="core-pandas")


def _apply(function: Callable[[pa.Table, int], T], frame: pd.DataFrame, start: int, stop: int) -> T:
    return function(_table(frame, start, stop), start)


def _table(frame: pd.DataFrame, start: int, stop: int) -> pa.Table:
    rows = frame.iloc[start:stop]
    # Faster than pa.Table.from_pandas, which describes the index too.
    return pa.table({name: rows[name].array.__arrow_array__() for name in rows.columns})


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise DataError(
            "the dataset does not fit into memory",
            hint="the dask processor works on a part at a time: set backend.processor to dask",
        ) from None
