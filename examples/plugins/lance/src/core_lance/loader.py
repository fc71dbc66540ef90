"""Batches by row number from a Lance dataset, the rows of many batches at once, some chunks ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from core.loader import Batch, BatchPlan, EncodedSplit, Loader, batch_runs, row_bytes, tensors, window_rows
from core_lance.copy import Copy
from core_lance.options import LanceOptions


class LanceLoader(Loader):
    """Holds no rows but those of the chunks on their way, whatever `fully_executed` says."""

    options: LanceOptions

    def __init__(self, split: EncodedSplit, options: LanceOptions, device: torch.device) -> None:
        super().__init__(split, options, device)
        self._copy = Copy(split, options.directory) if split.rows else None
        self._chunk_rows = max(1, options.chunk_bytes // row_bytes(split.schema))

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        chunks = self._chunks(plan, epoch, start)
        coming: deque[tuple[int, int, Future[dict[str, Tensor]]]] = deque()
        executor = ThreadPoolExecutor(self.options.readahead, thread_name_prefix="core-lance")
        try:
            while True:
                while len(coming) <= self.options.readahead and (chunk := next(chunks, None)) is not None:
                    whole, rows = chunk
                    coming.append((whole, len(rows), executor.submit(self._taken, rows.ravel())))
                if not coming:
                    return
                whole, count, taken = coming.popleft()
                columns = {name: column.to(self.device).tensor_split(count) for name, column in taken.result().items()}
                for batch in zip(*columns.values(), strict=True):
                    yield Batch(columns=dict(zip(columns, batch, strict=True)), rows=len(batch[0]), global_rows=whole)
        finally:
            executor.shutdown(cancel_futures=True)

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _chunks(self, plan: BatchPlan, epoch: int, start: int) -> Iterator[tuple[int, np.ndarray]]:
        """Rows of each whole batch, and the numbers of this worker's, of shape (batches, rows of a share)."""
        size = window_rows(self.options, self.split.schema)
        for whole, batches in batch_runs(self.split.rows, plan, epoch, start, window_rows=size):
            several = max(1, self._chunk_rows // max(1, batches.shape[1]))
            for first in range(0, len(batches), several):
                yield whole, batches[first : first + several]

    def _taken(self, rows: np.ndarray) -> dict[str, Tensor]:
        if not len(rows):
            return tensors(self.split.schema.empty_table())
        assert self._copy is not None
        return tensors(self._copy.dataset.take(rows, columns=self.split.schema.names))
