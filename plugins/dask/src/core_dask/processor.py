"""Dask as an engine of preprocessing."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import dask
import pyarrow as pa
from dask.delayed import Delayed, delayed
from dask.system import CPU_COUNT

from core.processor import Mergeable, Processor, Source
from core_dask import kept, tasks
from core_dask.options import DaskOptions

_log = logging.getLogger("core")

T = TypeVar("T")
S = TypeVar("S", bound=Mergeable)

FAN_IN = 8
"""Summaries merged by one task."""


class Partitions:
    """A dataset cut into blocks. The first pass reads it, counts the rows, and keeps the blocks where that is cheap.

    Attributes:
        readers: of the blocks, in row order.
        blocks: what later passes take them from, and the number of the first row of each; None before the first pass.
    """

    def __init__(self, readers: Sequence[kept.Reader]) -> None:
        self.readers = readers
        self.blocks: list[tuple[Any, int]] | None = None


class DaskProcessor(Processor[Partitions]):
    """Lazy and out of core: memory is bounded by the partitions that workers hold at a time.

    Tasks run on the Dask cluster that `address` names, or on the threads or processes of this machine that `scheduler`
    asks for. Where neither is given, they run on the Ray cluster that this process is connected to
    (`ray.is_initialized()`), by Ray's Dask-on-Ray scheduler, and without one on threads.

    A number of a row is known once the blocks before it have been counted, so the first pass reads the dataset for
    that, and keeps the blocks it has parsed: on this machine as Arrow files in a temporary folder, which later passes
    map into memory; on a cluster as objects of the cluster, which spills what does not fit.
    """

    options: DaskOptions

    def __init__(self, options: DaskOptions) -> None:
        super().__init__(options)
        self._client: Any = None
        self._pool: ProcessPoolExecutor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def open(self, source: Source) -> Partitions:
        return Partitions(source.blocks(self.options.parallelism))

    def map(self, frame: Partitions, function: Callable[[pa.Table, int], T]) -> list[T]:
        return [tasks.value(result) for result in self._compute(self._applied(frame, function))]

    def fold(self, frame: Partitions, summarise: Callable[[pa.Table, int], S]) -> S:
        level = self._applied(frame, summarise)
        merge = delayed(tasks.merge, pure=False)
        while len(level) > 1:
            level = [merge(*level[start : start + FAN_IN]) for start in range(0, len(level), FAN_IN)]
        (result,) = self._compute(level)
        return tasks.value(result)  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _applied(self, frame: Partitions, function: Callable[[pa.Table, int], Any]) -> list[Delayed]:
        if frame.blocks is None:
            frame.blocks = self._counted(frame.readers)
        # A node of its own: a cluster gets the function once, and not with every task.
        shared = delayed(tasks.Shared(function), pure=False, traverse=False)
        apply = delayed(tasks.apply, pure=False, traverse=False)
        return [apply(shared, block, first_row) for block, first_row in frame.blocks]

    def _counted(self, readers: Sequence[kept.Reader]) -> list[tuple[Any, int]]:
        """The blocks and their first rows, after a pass that reads everything once."""
        blocks = self._kept_by_cluster(readers) if self._scheduler() else self._kept_on_disk(readers)
        first_row = 0
        counted = []
        for block, rows in blocks:
            counted.append((block, first_row))
            first_row += rows
        return counted

    def _kept_on_disk(self, readers: Sequence[kept.Reader]) -> list[tuple[Any, int]]:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="core-dask-", ignore_cleanup_errors=True)
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        keep = delayed(kept.keep, pure=False, traverse=False)
        work = [keep(reader, str(folder / f"{number}.arrow")) for number, reader in enumerate(readers)]
        found = [tasks.value(result) for result in self._compute(work)]
        if problem := next((block.problem for block in found if block.problem), None):
            _log.warning(
                "dask: cannot keep parsed data in %s (%s): the dataset is read anew for each pass", folder, problem
            )
        return [(block.reader, block.rows) for block in found]

    def _kept_by_cluster(self, readers: Sequence[kept.Reader]) -> list[tuple[Any, int]]:
        read = delayed(tasks.read, pure=False, traverse=False)
        tables = self._persist([read(reader) for reader in readers])
        count = delayed(tasks.rows, pure=False)
        return list(zip(tables, (tasks.value(rows) for rows in self._compute([count(t) for t in tables])), strict=True))

    def _compute(self, work: Sequence[Delayed]) -> tuple[Any, ...]:
        scheduler, more = self._scheduler(), {}
        if scheduler is None:
            scheduler = self.options.scheduler or "threads"
            if scheduler == "processes":
                more = {"pool": self._processes()}
        return dask.compute(*work, scheduler=scheduler, traverse=False, **more)  # type: ignore[no-any-return]

    def _persist(self, work: Sequence[Delayed]) -> tuple[Any, ...]:
        scheduler = self._scheduler()
        more = {} if scheduler is self._client else {"ray_persist": True}
        return dask.persist(*work, scheduler=scheduler, traverse=False, **more)  # type: ignore[no-any-return]

    def _processes(self) -> ProcessPoolExecutor:
        """Workers for all passes; Dask by itself starts new ones for each."""
        if self._pool is None:
            # Forking would copy the locks of Arrow's and torch's threads as they are.
            self._pool = ProcessPoolExecutor(CPU_COUNT, multiprocessing.get_context("spawn"))
        return self._pool

    def _scheduler(self) -> Any:
        """The cluster's, or None where this machine does the work."""
        if self.options.address is not None:
            if self._client is None:
                from core_dask.cluster import connected

                self._client = connected(self.options.address)
            return self._client
        if self.options.scheduler is None and "ray" in sys.modules and sys.modules["ray"].is_initialized():
            from ray.util.dask import ray_dask_get

            return ray_dask_get
        return None
