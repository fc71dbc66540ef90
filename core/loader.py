"""The contract of a batch loader, and the one definition of the order of rows in training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import attrs

from core.specs import LoaderOptions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from torch import Tensor, device

SHUFFLE_BLOCK_ROWS = 4096
"""Windows are made of runs of this many consecutive rows. Physical row groups differ between engines; this does not."""


IN_ORDER_BYTES = 32 << 20
"""Rows in dataset order, without a window size, are read in pieces of about this size."""


class EncodedSplit(Protocol):
    """One split of the processed data: rows in dataset order, whatever files they lie in. It can be pickled."""

    @property
    def key(self) -> str:
        """A name, of letters and digits, that no split of other content has: for copies that outlive the loader."""

    @property
    def rows(self) -> int: ...

    @property
    def schema(self) -> pa.Schema:
        """One column a feature: float32, int32 or bool scalars, or fixed-size lists of int32."""

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows `start` to `stop`, in order."""


@attrs.frozen(kw_only=True)
class BatchPlan:
    """Which rows make which batch, for which worker. Equal plans give equal batches on every loader.

    Attributes:
        batch_size: rows of one optimiser step over all workers.
        rank, world_size: this worker and their number.
        seed: of the shuffle.
        shuffle: False keeps dataset order.
    """

    batch_size: int
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    shuffle: bool = True

    def share(self, rows: int) -> slice:
        """This worker's rows of a global batch of `rows` rows: contiguous, sizes differing by at most one."""
        return slice(rows * self.rank // self.world_size, rows * (self.rank + 1) // self.world_size)


@attrs.frozen(kw_only=True)
class Batch:
    """One worker's share of a global batch.

    Attributes:
        columns: feature name to tensor of shape (rows,) or (rows, width).
        rows: rows of this share; may be 0 where the last batch has fewer rows than workers.
        global_rows: rows of the whole batch over all workers.
    """

    columns: dict[str, Tensor]
    rows: int
    global_rows: int


class Loader(ABC):
    """Processed Parquet in, this worker's batches out."""

    def __init__(self, split: EncodedSplit, options: LoaderOptions, device: device) -> None:
        self.split = split
        self.options = options
        self.device = device

    @abstractmethod
    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on, in the order of `epoch_order`."""

    def close(self) -> None:
        """Give back memory, threads and actors."""


def row_bytes(schema: pa.Schema) -> int:
    """Bytes of one encoded row in memory."""
    import pyarrow as pa

    total = 0
    for field in schema:
        width = field.type.list_size if pa.types.is_fixed_size_list(field.type) else 1
        scalar = field.type.value_type if pa.types.is_fixed_size_list(field.type) else field.type
        total += width * max(1, scalar.bit_width // 8)
    return max(total, 1)


class EpochOrder:
    """Row numbers of an epoch, one array a window; their concatenation, cut by `batch_size`, gives the batches.

    Each window can be had by its number, for the cost of a window.
    """

    def __init__(self, rows: int, *, seed: int, epoch: int, shuffle: bool, window_rows: int | None) -> None:
        import numpy as np

        self._seed, self._rows, self._shuffle = [seed, epoch], rows, shuffle
        self._size = max(rows, 1) if window_rows is None or window_rows >= rows else window_rows
        self._blocks: np.ndarray | None = None
        if shuffle and self._size < rows:
            per_window = -(-self._size // SHUFFLE_BLOCK_ROWS)
            self._size = per_window * SHUFFLE_BLOCK_ROWS
            blocks = -(-rows // SHUFFLE_BLOCK_ROWS)
            self._blocks = np.random.Generator(np.random.PCG64(self._seed)).permutation(blocks)

    def __len__(self) -> int:
        return max(1, -(-self._rows // self._size))

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))

    def start(self, number: int) -> int:
        """Rows of the windows before this one; of all, where `number` is that of windows."""
        if number == len(self):
            return self._rows
        start = number * self._size
        if self._blocks is not None and (self._blocks[: start // SHUFFLE_BLOCK_ROWS] == len(self._blocks) - 1).any():
            start -= -self._rows % SHUFFLE_BLOCK_ROWS  # the last block, which lacks them, was put before it
        return start

    def __getitem__(self, number: int) -> np.ndarray:
        import numpy as np

        if not self._shuffle:
            return np.arange(number * self._size, min((number + 1) * self._size, self._rows))
        if self._blocks is None:
            return np.random.Generator(np.random.PCG64(self._seed)).permutation(self._rows)
        per_window = self._size // SHUFFLE_BLOCK_ROWS
        starts = self._blocks[number * per_window : (number + 1) * per_window, None] * SHUFFLE_BLOCK_ROWS
        window = (starts + np.arange(SHUFFLE_BLOCK_ROWS)).ravel()
        random = np.random.Generator(np.random.PCG64([*self._seed, number]))
        permuted: np.ndarray = random.permutation(window[window < self._rows])
        return permuted


def epoch_order(rows: int, *, seed: int, epoch: int, shuffle: bool, window_rows: int | None = None) -> EpochOrder:
    """The order of the rows of an epoch.

    Without windows it is one seeded permutation of all rows. With windows, blocks of `SHUFFLE_BLOCK_ROWS`
    consecutive rows are put in seeded order, cut into windows of at least `window_rows` rows, and permuted inside.
    """
    return EpochOrder(rows, seed=seed, epoch=epoch, shuffle=shuffle, window_rows=window_rows)


def batch_rows(
    rows: int, plan: BatchPlan, epoch: int, start: int = 0, *, window_rows: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """The batches of an epoch from number `start` on, as row numbers: all that a loader by row number has to know.

    Yields:
        Rows of the whole batch over all workers, and the numbers of this worker's rows of it, in order.
    """
    for whole, batches in batch_runs(rows, plan, epoch, start, window_rows=window_rows):
        for batch in batches:
            yield whole, batch


def batch_runs(
    rows: int, plan: BatchPlan, epoch: int, start: int = 0, *, window_rows: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """`batch_rows`, in runs of batches of one size that a window completes.

    Yields:
        Rows of each whole batch over all workers, and this worker's row numbers, of shape (batches, rows of a share).
    """
    import numpy as np

    size = plan.batch_size
    rest = np.empty(0, dtype=np.int64)
    for window in epoch_order(rows, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle, window_rows=window_rows):
        pending = np.concatenate([rest, window]) if len(rest) else window
        count = len(pending) // size
        if count > start:
            yield size, pending[start * size : count * size].reshape(-1, size)[:, plan.share(size)]
        start = max(0, start - count)
        rest = pending[count * size :]
    if len(rest) and not start:
        yield len(rest), rest[None, plan.share(len(rest))]


def window_rows(options: LoaderOptions, schema: pa.Schema) -> int | None:
    """Rows of a window of `window_size_bytes`; None where the whole split is one."""
    size = options.window_size_bytes
    return None if size is None else max(1, size // row_bytes(schema))


def streamed_rows(options: LoaderOptions, schema: pa.Schema, *, shuffle: bool) -> int | None:
    """Rows that a loader which holds no more than a window reads at once.

    A window; without one all rows, if they are shuffled. In dataset order no size changes anything: then it is small.
    """
    size = options.window_size_bytes
    if size is None and not shuffle:
        size = IN_ORDER_BYTES
    return None if size is None else max(1, size // row_bytes(schema))


def tensors(table: pa.Table) -> dict[str, Tensor]:
    """Encoded rows as the columns of a batch: feature name to a tensor of shape (rows,) or (rows, width), on CPU."""
    import pyarrow as pa
    import torch

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        if pa.types.is_fixed_size_list(array.type):
            flat = array.flatten().to_numpy(zero_copy_only=False)
            columns[name] = torch.tensor(flat).view(len(array), array.type.list_size)
        else:
            columns[name] = torch.tensor(array.to_numpy(zero_copy_only=False))
    return columns
