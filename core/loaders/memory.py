"""Batches from memory, with the whole split or a window of it held; a batch is a slice of a gather of many."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import numpy as np
import torch

from core.loader import Batch, BatchPlan, EncodedSplit, Loader, batch_runs, epoch_order, streamed_rows, window_rows
from core.loaders.ahead import read_ahead
from core.loaders.chunks import Chunk, chunk_rows, gathered, handed_out
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
            take = functools.partial(_taken, self._held, in_order=not plan.shuffle)
            yield from handed_out(gathered(runs, take, chunk_rows(self._held.layout)), self.device)
            return
        window = streamed_rows(self.options, self.split.schema, shuffle=plan.shuffle)
        with contextlib.closing(read_ahead(_streamed(self.split, plan, epoch, start, window))) as streamed:
            yield from handed_out(streamed, self.device)

    def close(self) -> None:
        self._resources.close()


def _taken(held: Rows, numbers: np.ndarray, *, in_order: bool) -> Rows:
    """These rows; where they follow each other in the dataset they are a view, and nothing is copied."""
    if in_order and len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return held[numbers[0] : numbers[-1] + 1]
    return held.take(numbers)


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
