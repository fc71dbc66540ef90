"""Batches from memory, with the whole split or a window of it held; a batch is a slice of a gather of many."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from core.loader import Batch, BatchPlan, EncodedSplit, Loader, batch_runs, epoch_order, streamed_rows, window_rows
from core.loaders.ahead import read_ahead
from core.loaders.chunks import Chunk, chunk_rows, cut, handed_out
from core.loaders.rows import Layout, Rows
from core.loaders.shared import held_rows
from core.specs import LoaderOptions


class MemoryLoader(Loader):
    """Holds the split in memory, once for the workers of a node; with `fully_executed: false`, two windows of it."""

    def __init__(self, split: EncodedSplit, options: LoaderOptions, device: torch.device) -> None:
        super().__init__(split, options, device)
        self._resources = contextlib.ExitStack()
        self._held = self._resources.enter_context(held_rows(split)) if options.fully_executed else None

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        if self._held is not None:
            window = window_rows(self.options, self.split.schema)
            runs = batch_runs(self.split.rows, plan, epoch, start, window_rows=window)
            yield from handed_out(_gathered(self._held, runs, in_order=not plan.shuffle), self.device)
            return
        window = streamed_rows(self.options, self.split.schema, shuffle=plan.shuffle)
        streamed = read_ahead(_streamed(self.split, plan, epoch, start, window))
        with contextlib.closing(streamed):
            yield from handed_out((part for chunk in streamed for part in cut(chunk)), self.device)

    def close(self) -> None:
        self._resources.close()


def _gathered(held: Rows, runs: Iterator[tuple[int, np.ndarray]], *, in_order: bool) -> Iterator[Chunk]:
    for whole, batches in runs:
        several = max(1, chunk_rows(held.layout) // max(1, batches.shape[1]))
        for first in range(0, len(batches), several):
            rows = batches[first : first + several]
            alone = len(rows) == 1 and in_order and rows.size
            # One batch in dataset order is a view: nothing is copied.
            found = held[rows[0, 0] : rows[0, -1] + 1] if alone else held.take(rows.ravel())
            yield Chunk(whole, len(rows), found)


def _streamed(split: EncodedSplit, plan: BatchPlan, epoch: int, start: int, window_rows: int | None) -> Iterator[Chunk]:
    """The batches that end in a window, one window after the other, each read when the one before has been taken."""
    rows, size = split.rows, plan.batch_size
    rest = Rows.empty(Layout.of(split.schema), 0)
    before = 0
    for window in epoch_order(rows, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle, window_rows=window_rows):
        after = before + len(window)
        mine = _mine(plan, rows, start, np.arange(before, after))
        if mine.any():
            rest = Rows.concatenate([rest, Rows.read(split, window[mine])])
        full = after // size - max(start, before // size)
        for whole, count in ((size, full), (rows % size, int(after == rows and start * size < rows))):
            share = plan.share(whole)
            taken = count * (share.stop - share.start)
            if whole and count > 0:
                yield Chunk(whole, count, rest[:taken])
                rest = Rows.concatenate([rest[taken:], rest[:0]])  # a copy: the window can go
        before = after


def _mine(plan: BatchPlan, rows: int, start: int, places: np.ndarray) -> np.ndarray:
    """Which places in an epoch are this worker's, in batches from `start` on."""
    batch, place = np.divmod(places, plan.batch_size)
    whole = np.minimum(plan.batch_size, rows - batch * plan.batch_size)
    low, high = whole * plan.rank // plan.world_size, whole * (plan.rank + 1) // plan.world_size
    wanted: np.ndarray = (batch >= start) & (place >= low) & (place < high)
    return wanted
