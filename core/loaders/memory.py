"""Batches from memory, with the whole split or a window of it held; a batch is a slice of a gather of many."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import attrs
import numpy as np
import torch
from torch import Tensor

from core.loader import Batch, BatchPlan, EncodedSplit, Loader, batch_rows, epoch_order, window_rows
from core.loaders.ahead import read_ahead
from core.loaders.rows import READ_ROWS, Layout, Rows, columns
from core.loaders.shared import held_rows
from core.specs import LoaderOptions

CHUNK_BYTES = 1 << 20
"""Rows of small batches are gathered together, as many as stay in a processor's cache."""

CHUNKS_AHEAD = 2
"""Chunks that are on their way to a GPU while it computes."""


@attrs.frozen
class Chunk:
    """Consecutive batches of this worker.

    Attributes:
        sizes: rows of each whole batch over all workers, and this worker's of it.
        rows: this worker's, of one batch after the other.
    """

    sizes: list[tuple[int, int]]
    rows: Rows


class MemoryLoader(Loader):
    """Holds the split in memory, once for the workers of a node; with `fully_executed: false`, two windows of it."""

    def __init__(self, split: EncodedSplit, options: LoaderOptions, device: torch.device) -> None:
        super().__init__(split, options, device)
        self._resources = contextlib.ExitStack()
        self._held = self._resources.enter_context(held_rows(split)) if options.fully_executed else None

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        if self._held is not None:
            yield from handed_out(self._gathered(self._held, plan, epoch, start), self.device)
            return
        chunks = (part for window in read_ahead(self._windows(plan, epoch, start)) for part in _cut(window))
        with contextlib.closing(chunks):
            yield from handed_out(chunks, self.device)

    def close(self) -> None:
        self._resources.close()

    def _gathered(self, held: Rows, plan: BatchPlan, epoch: int, start: int) -> Iterator[Chunk]:
        size = window_rows(self.options, self.split.schema)
        order = batch_rows(self.split.rows, plan, epoch, start, window_rows=size)
        several = max(1, _chunk_rows(held.layout) // max(1, plan.batch_size // plan.world_size))
        while batches := list(itertools.islice(order, several)):
            sizes = [(whole, len(rows)) for whole, rows in batches]
            if len(batches) == 1 and not plan.shuffle:
                rows = batches[0][1]  # in dataset order: a view, nothing is copied
                yield Chunk(sizes, held[rows[0] : rows[-1] + 1] if len(rows) else held[:0])
            else:
                yield Chunk(sizes, held.take(np.concatenate([rows for _, rows in batches])))

    def _windows(self, plan: BatchPlan, epoch: int, start: int) -> Iterator[Chunk]:
        """The windows of an epoch, each with the batches that end in it."""
        rows, size = self.split.rows, plan.batch_size
        order = epoch_order(
            rows,
            seed=plan.seed,
            epoch=epoch,
            shuffle=plan.shuffle,
            window_rows=window_rows(self.options, self.split.schema),
        )
        rest = Rows.empty(Layout.of(self.split.schema), 0)
        before = 0
        for window in order:
            after = before + len(window)
            ending = range(max(start, before // size), -(-rows // size) if after == rows else after // size)
            mine = _mine(plan, rows, before, after, start)
            if mine.any():
                rest = Rows.concatenate([rest, self._read(window, mine)])
            sizes = []
            for number in ending:
                whole = min(size, rows - number * size)
                share = plan.share(whole)
                sizes.append((whole, share.stop - share.start))
            count = sum(share for _, share in sizes)
            if sizes:
                yield Chunk(sizes, rest[:count])
                rest = Rows.concatenate([rest[count:], rest[:0]])  # a copy: the window can go
            before = after

    def _read(self, window: np.ndarray, mine: np.ndarray) -> Rows:
        """This worker's rows of a window, in its order. The window is read as runs of consecutive rows."""
        places = np.argsort(window[mine])
        wanted = window[mine][places]
        found = Rows.empty(Layout.of(self.split.schema), len(wanted))
        ascending = np.sort(window)
        for run in np.split(ascending, np.flatnonzero(np.diff(ascending) != 1) + 1):
            for first in range(int(run[0]), int(run[-1]) + 1, READ_ROWS):
                stop = min(first + READ_ROWS, int(run[-1]) + 1)
                low, high = np.searchsorted(wanted, [first, stop])
                part = Rows.from_arrow(self.split.read(first, stop))
                found.matrix[places[low:high]] = part.matrix[wanted[low:high] - first]
        return found


def handed_out(chunks: Iterator[Chunk], device: torch.device) -> Iterator[Batch]:
    """The batches of chunks, on `device`; those of a GPU are copied to it ahead, beside its work."""
    for chunk, matrix in _on_gpu(chunks, device) if device.type == "cuda" else _on_cpu(chunks):
        first = 0
        for whole, rows in chunk.sizes:
            part = columns(chunk.rows.layout, matrix[first : first + rows])
            yield Batch(columns=part, rows=rows, global_rows=whole)
            first += rows


def _on_cpu(chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Tensor]]:
    for chunk in chunks:
        yield chunk, torch.from_numpy(chunk.rows.matrix)


def _on_gpu(chunks: Iterator[Chunk], device: torch.device) -> Iterator[tuple[Chunk, Tensor]]:
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied() -> Iterator[tuple[Chunk, Tensor, torch.cuda.Event]]:
        for chunk in chunks:
            with torch.cuda.stream(stream):
                matrix = torch.from_numpy(chunk.rows.matrix).pin_memory(device).to(device, non_blocking=True)
                yield chunk, matrix, stream.record_event()

    for chunk, matrix, event in read_ahead(copied(), CHUNKS_AHEAD):
        current = torch.cuda.current_stream(device)
        current.wait_event(event)
        matrix.record_stream(current)  # its memory is not to be used again before the model is done with it
        yield chunk, matrix


def _mine(plan: BatchPlan, rows: int, before: int, after: int, start: int) -> np.ndarray:
    """Which of the places `before` to `after` of an epoch are this worker's, in batches from `start` on."""
    batch, place = np.divmod(np.arange(before, after), plan.batch_size)
    whole = np.minimum(plan.batch_size, rows - batch * plan.batch_size)
    low, high = whole * plan.rank // plan.world_size, whole * (plan.rank + 1) // plan.world_size
    wanted: np.ndarray = (batch >= start) & (place >= low) & (place < high)
    return wanted


def _cut(chunk: Chunk) -> Iterator[Chunk]:
    """A chunk in chunks of about `CHUNK_BYTES`."""
    sizes: list[tuple[int, int]] = []
    first = count = 0
    for whole, rows in chunk.sizes:
        sizes.append((whole, rows))
        count += rows
        if count >= _chunk_rows(chunk.rows.layout):
            yield Chunk(sizes, chunk.rows[first : first + count])
            sizes, first, count = [], first + count, 0
    if sizes:
        yield Chunk(sizes, chunk.rows[first : first + count])


def _chunk_rows(layout: Layout) -> int:
    return max(1, CHUNK_BYTES // (4 * layout.words))
