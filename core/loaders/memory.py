"""Batches from memory: columns of one kind lie in one matrix, and a batch is one gather of whole rows a kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from core.loader import Batch, BatchPlan, EncodedSplit, Loader, epoch_order
from core.specs import LoaderOptions


class Rows:
    """Encoded rows as tensors: scalar columns of one type share a matrix, every list column has its own.

    `names` holds, for each matrix, the names of its columns, or the one name of the list column it is.
    """

    def __init__(self, names: list[list[str] | str], matrices: list[Tensor]) -> None:
        self.names = names
        self.matrices = matrices

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Rows:
        """Copies the columns once, into place; the table may be a memory map."""
        scalars: dict[pa.DataType, list[str]] = {}
        names: list[list[str] | str] = []
        matrices: list[Tensor] = []
        for field in table.schema:
            if pa.types.is_fixed_size_list(field.type):
                names.append(field.name)
                matrices.append(torch.from_numpy(_list_matrix(table.column(field.name))))
            else:
                scalars.setdefault(field.type, []).append(field.name)
        for kind, columns in scalars.items():
            matrix = np.empty((table.num_rows, len(columns)), dtype=kind.to_pandas_dtype())
            for index, column in enumerate(columns):
                start = 0
                for chunk in table.column(column).chunks:
                    matrix[start : start + len(chunk), index] = chunk.to_numpy(zero_copy_only=False)
                    start += len(chunk)
            names.append(columns)
            matrices.append(torch.from_numpy(matrix))
        return cls(names, matrices)

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
            if device.type == "cuda":
                matrix = matrix.pin_memory().to(device, non_blocking=True)
            if isinstance(names, str):
                columns[names] = matrix
            else:
                columns.update(zip(names, matrix.unbind(1), strict=True))
        return columns


def _list_matrix(column: pa.ChunkedArray) -> np.ndarray:
    width = column.type.list_size
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, width) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.empty((0, width), dtype=np.int32)


class MemoryLoader(Loader):
    """Holds the split in memory, or, with `fully_executed: false`, one window of it at a time."""

    def __init__(self, split: EncodedSplit, options: LoaderOptions, device: torch.device) -> None:
        super().__init__(split, options, device)
        self._held = Rows.from_arrow(split.read(0, split.rows)) if options.fully_executed else None

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        windows = epoch_order(
            self.split.rows, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle, window_rows=self._window_rows()
        )
        number = 0
        for rows in self._cut(windows, plan.batch_size):
            if number >= start:
                share = plan.share(len(rows))
                mine = rows[share] if isinstance(rows, Rows) else self._take(rows[share])
                yield Batch(columns=mine.columns(self.device), rows=len(mine), global_rows=len(rows))
            number += 1

    def _window_rows(self) -> int | None:
        size = self.options.window_size_bytes
        return None if size is None else max(1, size // _row_bytes(self.split.schema))

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


def _row_bytes(schema: pa.Schema) -> int:
    """Bytes of one encoded row in memory."""
    total = 0
    for field in schema:
        width = field.type.list_size if pa.types.is_fixed_size_list(field.type) else 1
        scalar = field.type.value_type if pa.types.is_fixed_size_list(field.type) else field.type
        total += width * max(1, scalar.bit_width // 8)
    return max(total, 1)
