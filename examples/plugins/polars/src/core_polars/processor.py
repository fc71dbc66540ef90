"""Partitions as polars frames. The first pass begins with the first partition, not when the last has been read."""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import attrs
import polars as pl
import pyarrow as pa

from core.processor import Mergeable, Processor, Source
from core_polars.options import PolarsOptions

T = TypeVar("T")
S = TypeVar("S", bound=Mergeable)
Read = Callable[[], pa.Table]


@attrs.frozen
class Partition:
    """Rows in polars' own form, and what they are for everyone else.

    Attributes:
        first_row: number of the first row in the dataset.
    """

    frame: pl.DataFrame
    schema: pa.Schema
    first_row: int

    def table(self) -> pa.Table:
        """As it was read: polars has one kind of text, Arrow has three."""
        return self.frame.to_arrow(compat_level=pl.CompatLevel.newest()).cast(self.schema)


@attrs.define
class Dataset:
    """A dataset: how its partitions are read, until the first pass has; then the partitions."""

    readers: Sequence[Read]
    partitions: list[Partition] | None = None


class PolarsProcessor(Processor[Dataset]):
    """Threads work on several partitions at once: reading, polars and core's own functions let each other run."""

    options: PolarsOptions

    def open(self, source: Source) -> Dataset:
        return Dataset(source.blocks(self.options.parallelism))

    def map(self, frame: Dataset, function: Callable[[pa.Table, int], T]) -> list[T]:
        return list(self._each(frame, function))

    def fold(self, frame: Dataset, summarise: Callable[[pa.Table, int], S]) -> S:
        summaries = self._each(frame, summarise)
        whole = next(summaries)
        for summary in summaries:  # each as soon as it is there, while threads work on those that follow
            whole.merge(summary)
        return whole

    def _each(self, frame: Dataset, function: Callable[[pa.Table, int], T]) -> Iterator[T]:
        """What `function` gives for each partition, in order; else what the first of them raises that does."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="core-polars") as executor:
            coming: deque[Future[tuple[Partition, T]]] = deque()
            kept: list[Partition] = []
            try:
                for call in self._calls(frame, function, executor):
                    coming.append(executor.submit(call))
                    if len(coming) > 2 * self._threads:
                        partition, result = coming.popleft().result()
                        kept.append(partition)
                        yield result
                while coming:
                    partition, result = coming.popleft().result()
                    kept.append(partition)
                    yield result
                frame.partitions = kept
            finally:
                for future in coming:
                    future.cancel()

    def _calls(
        self, frame: Dataset, function: Callable[[pa.Table, int], T], executor: ThreadPoolExecutor
    ) -> Iterator[Callable[[], tuple[Partition, T]]]:
        """What is to be done with each partition; the first pass reads them, some ahead."""
        if frame.partitions is None:
            for table, first_row in _read_ahead(frame.readers, executor, 2 * self._threads):
                yield functools.partial(_keep_and_apply, function, table, first_row)
        else:
            for partition in frame.partitions:
                yield functools.partial(_apply, function, partition)

    @property
    def _threads(self) -> int:
        return self.options.threads or len(os.sched_getaffinity(0))


def _read_ahead(readers: Sequence[Read], executor: ThreadPoolExecutor, depth: int) -> Iterator[tuple[pa.Table, int]]:
    """Each partition and its first row, once those before it have been read too; `depth` of them are read ahead."""
    waiting = iter(readers)
    coming: deque[Future[pa.Table]] = deque()
    first_row = 0
    while True:
        coming.extend(executor.submit(read) for read in itertools.islice(waiting, depth - len(coming)))
        if not coming:
            return
        table = coming.popleft().result()
        yield table, first_row
        first_row += table.num_rows


def _keep_and_apply(function: Callable[[pa.Table, int], T], table: pa.Table, first_row: int) -> tuple[Partition, T]:
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return Partition(frame, table.schema, first_row), function(table, first_row)


def _apply(function: Callable[[pa.Table, int], T], partition: Partition) -> tuple[Partition, T]:
    return partition, function(partition.table(), partition.first_row)
