"""The default engine: a pandas DataFrame in this process's memory, its slices worked on by threads."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar, cast

import pandas as pd
import pyarrow as pa

from core.data.memory import in_megabytes, room, too_large
from core.data.sources import FileBlock, FileSource
from core.processor import Processor, Source

T = TypeVar("T")

PARTITION_ROWS = 1 << 18
"""Most rows of a partition where the config asks for no number of them."""
_SMALL = 1 << 15
"""Fewer rows than this are not worth a second partition."""
_LOOKED_AT = 4
"""Blocks that show how much memory all of them take."""
_BESIDE_BYTES = 1 << 27
"""What the passes hold beside the table, at the very least: 200 to 600 MB were measured."""


class PandasProcessor(Processor[pd.DataFrame]):
    """Eager, in memory. Arrow-backed columns, so that partitions are views; pyarrow and numpy let threads run."""

    def open(self, source: Source) -> pd.DataFrame:
        with _enough_memory(), self._executor() as executor:
            return pa.concat_tables(_read(source, executor)).to_pandas(types_mapper=pd.ArrowDtype)

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


def _read(source: Source, executor: Executor) -> list[pa.Table]:
    """All blocks, in order; some of those of files before the others, to see whether there is room for all.

    Raises:
        DataError: there is not.
    """
    blocks = source.blocks(None)
    early: dict[int, pa.Table] = {}
    if isinstance(source, FileSource) and len(blocks) > _LOOKED_AT and (space := room()) is not None:
        chosen = [len(blocks) * number // _LOOKED_AT for number in range(_LOOKED_AT)]
        before = pa.total_allocated_bytes()
        early.update(zip(chosen, executor.map(lambda index: blocks[index](), chosen), strict=True))
        # What is mapped from a file, and not allocated, needs no room.
        taken = min(pa.total_allocated_bytes() - before, sum(table.nbytes for table in early.values()))
        sizes = [cast(FileBlock, block).stored for block in blocks]
        needed = taken * sum(sizes) / sum(sizes[index] for index in chosen)
        if needed + _BESIDE_BYTES > space.bytes:
            found = f"{in_megabytes(sum(sizes))} take up about {in_megabytes(needed)} when they are read"
            raise too_large(source.name, found, space)
    late = [index for index in range(len(blocks)) if index not in early]
    read = early | dict(zip(late, executor.map(lambda index: blocks[index](), late), strict=True))
    return [read[index] for index in range(len(blocks))]


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
        raise too_large("", "no more of it can be had", room()) from None
