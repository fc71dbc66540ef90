"""Batches from memory: columns of one kind lie in one matrix, and a batch is one gather of whole rows a kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from core.loader import Batch, BatchPlan, EncodedSplit, Loader, epoch_order, row_bytes
from core.specs import LoaderOptions

READ_ROWS = 1 << 14
"""Rows read at once into memory."""


class Rows:
    """Encoded rows as tensors: scalar columns of one type share a matrix, every list column has its own.

    `names` holds, for each matrix, the names of its columns, or the one name of the list column it is.
    """

    def __init__(self, names: list[list[str] | str], matrices: list[Tensor]) -> None:
        self.names = names
        self.matrices = matrices

    @classmethod
    def empty(cls, schema: pa.Schema, rows: int) -> Rows:
        """Room for `rows` rows."""
        names: list[list[str] | str] = []
        matrices: list[Tensor] = []
        scalars: dict[pa.DataType, list[str]] = {}
        for field in schema:
            if pa.types.is_fixed_size_list(field.type):
                names.append(field.name)
                matrices.append(torch.empty(rows, field.type.list_size, dtype=torch.int32))
            else:
                scalars.setdefault(field.type, []).append(field.name)
        for kind, columns in scalars.items():
            names.append(columns)
            matrices.append(torch.from_numpy(np.empty((rows, len(columns)), dtype=kind.to_pandas_dtype())))
        return cls(names, matrices)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Rows:
        """The rows of a table, copied once."""
        rows = cls.empty(table.schema, table.num_rows)
        rows.fill(0, table)
        return rows

    @classmethod
    def of(cls, split: EncodedSplit) -> Rows:
        """A whole split, read a part at a time: the rows are in memory once, and only a few of them twice."""
        rows = cls.empty(split.schema, split.rows)
        for start in range(0, split.rows, READ_ROWS):
            rows.fill(start, split.read(start, start + READ_ROWS))
        return rows

    def fill(self, start: int, table: pa.Table) -> None:
        """Put the table's rows in place of those from `start` on."""
        for names, matrix in zip(self.names, self.matrices, strict=True):
            for index, name in enumerate([names] if isinstance(names, str) else names):
                row = start
                for chunk in table.column(name).chunks:
                    place = matrix[row : row + len(chunk)].numpy()
                    if isinstance(names, str):
                        place[:] = chunk.flatten().to_numpy(zero_copy_only=False).reshape(place.shape)
                    else:
                        place[:, index] = chunk.to_numpy(zero_copy_only=False)
                    row += len(chunk)

    @classmethod
    def concatenate(cls, parts: list[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        return cls(parts[0].names, [torch.cat(columns) for columns in zip(*(p.matrices for p in parts), strict=True)])

    def __len__(self) -> int:
        return len(self.matrices[0]) if self.matrices else 0

    def __getitem__(self, index: slice | Tensor) -> Rows:
        if isinstance(index, slice):
            return Rows(self.names, [matrix[index] for matrix in self.matrices])
        return Rows(self.names, [matrix.index_select(0, index) for matrix in self.matrices])

    def columns(self, device: torch.device) -> dict[str, Tensor]:
        """Feature name to (rows,) or (rows, width), on `device`."""
        columns: dict[str, Tensor] = {}
        for names, matrix in zip(self.names, self.matrices, strict=True):
            placed = matrix.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else matrix
            if isinstance(names, str):
                columns[names] = placed
            else:
                columns.update(zip(names, placed.unbind(1), strict=True))
        return columns


class MemoryLoader(Loader):
    """Holds the split in memory, or, with `fully_executed: false`, one window of it at a time."""

    def __init__(self, split: EncodedSplit, options: LoaderOptions, device: torch.device) -> None:
        super().__init__(split, options, device)
        self._held = Rows.of(split) if options.fully_executed else None

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        windows = epoch_order(
            self.split.rows, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle, window_rows=self._window_rows()
        )
        for rows in itertools.islice(self._cut(windows, plan.batch_size), start, None):
            share = plan.share(len(rows))
            mine = rows[share] if isinstance(rows, Rows) else self._take(rows[share])
            yield Batch(columns=mine.columns(self.device), rows=len(mine), global_rows=len(rows))

    def _window_rows(self) -> int | None:
        size = self.options.window_size_bytes
        return None if size is None else max(1, size // row_bytes(self.split.schema))

    def _take(self, rows: np.ndarray) -> Rows:
        assert self._held is not None
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            return self._held[int(rows[0]) : int(rows[-1]) + 1]  # in dataset order: a view, nothing is copied
        return self._held[torch.from_numpy(np.ascontiguousarray(rows))]

    def _cut(self, windows: Iterator[np.ndarray], size: int) -> Iterator[np.ndarray | Rows]:
        """Batches of `size` rows from windows of any length; only the last batch of the epoch is smaller."""
        if self._held is not None:
            order = np.concatenate([np.empty(0, dtype=np.int64), *windows])
            for first in range(0, len(order), size):
                yield order[first : first + size]
            return
        rest: list[Rows] = []
        waiting = 0
        for window in windows:
            rest.append(self._read(window))
            waiting += len(window)
            if waiting >= size:
                rows = Rows.concatenate(rest)
                whole = waiting - waiting % size
                for first in range(0, whole, size):
                    yield rows[first : first + size]
                rest, waiting = [rows[whole:]], waiting - whole
        if waiting:
            yield Rows.concatenate(rest)

    def _read(self, window: np.ndarray) -> Rows:
        """The rows of a window, in its order, read as runs of consecutive rows."""
        ascending = np.sort(window)
        breaks = np.flatnonzero(np.diff(ascending) != 1) + 1
        runs = np.split(ascending, breaks)
        tables = [self.split.read(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]
        index = np.searchsorted(ascending, window)
        return Rows.from_arrow(pa.concat_tables(tables))[torch.from_numpy(index)]
