"""What reads for all workers of a group: one actor that runs Ray Data, so that each row is decoded once.

Blocks of records lie in the object store of a node once, whatever the number of its workers, which map them.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray.data import ExecutionResources

from core.errors import CoreError
from core.loader import EncodedSplit, EpochOrder, epoch_order
from core.loaders.rows import Layout, Rows

BLOCK_BYTES = 16 << 20
"""Rows that are read into memory before training come in blocks of about this size."""

READERS = 4
"""Tasks that read blocks at once. They take no CPU from Ray's books: the workers may have all of them."""

AHEAD = 1
"""Windows that may be taken by one worker before all others have taken the one before."""

_COLUMN, _ERROR = "records", "error"


@attrs.frozen(kw_only=True)
class Epoch:
    """One pass over the windows of a split by all workers.

    Attributes:
        turn: of the passes that the workers began, the how manieth this is.
        seed, number, shuffle, window_rows: as `core.loader.epoch_order` takes them.
        first: number of the first window.
    """

    turn: int
    seed: int
    number: int
    shuffle: bool
    window_rows: int | None
    first: int


class Feed:
    """The actor.

    Args:
        options: of Ray, for the tasks that read.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        context.target_max_block_size = None  # what a task makes stays in one piece
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # an error goes to the worker that asked
        self._options = options
        self._lock = threading.Lock()
        self._splits: dict[str, EncodedSplit] = {}
        self._blocks: dict[str, list[Any]] = {}
        self._passes: dict[tuple[str, Epoch], _Pass] = {}

    def know(self, split: EncodedSplit) -> None:
        """A split, for later calls to name by its key."""
        self._splits[split.key] = split

    def held(self, key: str, block_rows: int) -> list[Any]:
        """References to the blocks of all rows, each of `block_rows`, in the object store."""
        with self._lock:
            if key not in self._blocks:
                rows = self._splits[key].rows
                ranges = [(first, first + block_rows) for first in range(0, rows, block_rows)]
                dataset = self._dataset(key, ranges, _read_range, READERS).materialize()
                self._blocks[key] = list(_references(dataset.iter_internal_ref_bundles()))
            return self._blocks[key]

    def window(self, key: str, of: Epoch, rank: int, world_size: int, number: int) -> list[Any]:
        """A reference to a window of an epoch, once all workers have taken the one before the one before it.

        Nothing for a worker that has left.
        """
        with self._lock:
            if (key, of) not in self._passes:
                self._passes[key, of] = self._begin(key, of, world_size)
            found = self._passes[key, of]
        return found.take(rank, number)

    def leave(self, key: str, of: Epoch, rank: int) -> None:
        """A worker takes no more windows of an epoch."""
        with self._lock:
            found = self._passes.get((key, of))
        if found is not None and found.leave(rank):
            with self._lock:
                self._passes.pop((key, of), None)

    def _begin(self, key: str, of: Epoch, world_size: int) -> _Pass:
        split = self._splits[key]
        order = epoch_order(split.rows, seed=of.seed, epoch=of.number, shuffle=of.shuffle, window_rows=of.window_rows)
        size = -(-split.rows // len(order)) * 4 * Layout.of(split.schema).words
        dataset = self._dataset(key, range(of.first, len(order)), _ReadWindow(order), 1)
        dataset.context.execution_options.resource_limits = ExecutionResources(object_store_memory=2 * size)
        return _Pass(dataset, of.first, world_size)

    def _dataset(self, key: str, items: Sequence[Any], read: Callable[..., Rows], readers: int) -> ray.data.Dataset:
        """One block for each item, in order."""
        split = self._splits[key]

        def task(batch: dict[str, np.ndarray]) -> pa.Table:
            [item] = batch["item"]
            try:
                return to_arrow(read(split, item))
            except CoreError as error:  # Ray Data would make text of it
                return pa.table({_ERROR: [pickle.dumps(error)]})

        return ray.data.from_items(list(items), override_num_blocks=len(items)).map_batches(
            task, batch_size=None, concurrency=readers, num_cpus=0, **self._options
        )


class _Pass:
    """The windows of one epoch on their way: read in order, handed to each worker, and then let go."""

    def __init__(self, dataset: ray.data.Dataset, first: int, world_size: int) -> None:
        self._dataset: ray.data.Dataset | None = dataset
        self._references: Iterator[Any] = iter(())
        self._windows: dict[int, Any] = {}
        self._next = first
        self._taken = dict.fromkeys(range(world_size), first - 1)
        self._changed = threading.Condition()

    def take(self, rank: int, number: int) -> list[Any]:
        with self._changed:
            if rank in self._taken:
                self._taken[rank] = number - 1
            self._let_go()
            self._changed.wait_for(lambda: rank not in self._taken or number - 1 <= min(self._taken.values()) + AHEAD)
            if rank not in self._taken:
                return []
            if self._dataset is not None:  # begins to read
                self._references, self._dataset = _references(self._dataset.iter_internal_ref_bundles()), None
            while self._next <= number:
                self._windows[self._next] = next(self._references)
                self._next += 1
            return [self._windows[number]]

    def leave(self, rank: int) -> bool:
        """Whether it was the last one."""
        with self._changed:
            self._taken.pop(rank, None)
            self._let_go()
            return not self._taken

    def _let_go(self) -> None:
        done = min(self._taken.values(), default=self._next)
        self._windows = {number: window for number, window in self._windows.items() if number > done}
        self._changed.notify_all()


@attrs.frozen
class _ReadWindow:
    order: EpochOrder

    def __call__(self, split: EncodedSplit, number: Any) -> Rows:
        return Rows.read(split, self.order[int(number)])


def _read_range(split: EncodedSplit, edges: Any) -> Rows:
    first, last = (int(edge) for edge in edges)
    return Rows.from_arrow(split.read(first, last))


def _references(bundles: Iterator[Any]) -> Iterator[Any]:
    """A reference to each block."""
    for bundle in bundles:
        yield from bundle.block_refs


def to_arrow(rows: Rows) -> pa.Table:
    """The records, as a column of bytes."""
    data = pa.py_buffer(np.ascontiguousarray(rows.matrix))
    kind = pa.binary(4 * rows.layout.words)
    return pa.table({_COLUMN: pa.FixedSizeBinaryArray.from_buffers(kind, len(rows), [None, data])})


def from_arrow(layout: Layout, table: pa.Table) -> Rows:
    """The records of a block, where they lie.

    Raises:
        CoreError: what the task that should have read them met.
    """
    if table.column_names == [_ERROR]:
        raise pickle.loads(table.column(_ERROR)[0].as_py())
    [chunk] = table.column(_COLUMN).chunks
    first, last = chunk.offset * layout.words, (chunk.offset + len(chunk)) * layout.words
    matrix = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[first:last]
    return Rows(layout, matrix.reshape(len(chunk), layout.words))
