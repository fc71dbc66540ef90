"""Batches of one size in one piece: what a loader gathers at once, and cuts batches out of without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np
import torch
from torch import Tensor

from core.loader import Batch
from core.loaders.ahead import read_ahead
from core.loaders.rows import Layout, Rows, batch_columns

CHUNK_BYTES = 1 << 20
"""Rows of small batches are gathered together, as many as stay in a processor's cache."""

CHUNKS_AHEAD = 2
"""Chunks that are on their way to a GPU while it computes."""


@attrs.frozen
class Chunk:
    """Consecutive batches of this worker, all of one size.

    Attributes:
        whole: rows of each batch over all workers.
        count: batches.
        rows: this worker's, of one batch after the other.
    """

    whole: int
    count: int
    rows: Rows


def gathered(
    runs: Iterator[tuple[int, np.ndarray]], take: Callable[[np.ndarray], Rows], most_rows: int
) -> Iterator[Chunk]:
    """Chunks of up to `most_rows` rows, or one batch, from runs as `core.loader.batch_runs` gives them."""
    for whole, batches in runs:
        several = max(1, most_rows // max(1, batches.shape[1]))
        for first in range(0, len(batches), several):
            part = batches[first : first + several]
            yield Chunk(whole, len(part), take(part.ravel()))


def handed_out(chunks: Iterator[Chunk], device: torch.device) -> Iterator[Batch]:
    """The batches of chunks, on `device`; those of a GPU are copied to it ahead, beside its work."""
    parts = (part for chunk in chunks for part in _cut(chunk))
    for chunk, matrix in _on_gpu(parts, device) if device.type == "cuda" else _on_cpu(parts):
        share = len(matrix) // chunk.count
        for columns in batch_columns(chunk.rows.layout, matrix, chunk.count):
            yield Batch(columns=columns, rows=share, global_rows=chunk.whole)


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


def _cut(chunk: Chunk) -> Iterator[Chunk]:
    """A chunk in chunks of about `CHUNK_BYTES`."""
    share = len(chunk.rows) // chunk.count
    several = max(1, chunk_rows(chunk.rows.layout) // max(1, share))
    for first in range(0, chunk.count, several):
        count = min(several, chunk.count - first)
        yield Chunk(chunk.whole, count, chunk.rows[first * share : (first + count) * share])


def chunk_rows(layout: Layout) -> int:
    return max(1, CHUNK_BYTES // (4 * layout.words))
