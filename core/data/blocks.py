"""Readers of consecutive rows, joined where there are more of them than an engine wants."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

Reader = Callable[[], pa.Table]

_PARTS = 8
"""Blocks of a dataset that is neither small nor large, where nobody asks for a number of them."""


def block_size(total: int, least: int, most: int) -> int:
    """The size of a block where nobody asks for a number of them: some for each worker, not too many at once."""
    return min(max(-(-total // _PARTS), least), most)


def grouped(readers: Sequence[Reader], sizes: Sequence[float], count: int | None) -> list[Reader]:
    """The readers, joined with their neighbours into `count` of about one size where there are more."""
    if count is None or len(readers) <= count:
        return list(readers)
    # A reader goes where its middle falls, and every group gets one at least.
    ends = np.cumsum(sizes)
    group = np.arange(1, count)
    edges = np.searchsorted(ends - np.array(sizes) / 2, ends[-1] * group / count)
    edges = np.maximum.accumulate(np.maximum(edges - group, 0)) + group
    edges = np.minimum(edges, len(readers) - count + group)
    bounds = [0, *edges.tolist(), len(readers)]
    return [functools.partial(_joined, tuple(readers[a:b])) for a, b in itertools.pairwise(bounds)]


def _joined(readers: Sequence[Reader]) -> pa.Table:
    return pa.concat_tables([read() for read in readers])
