"""Encoded rows in memory: one matrix of 4-byte words, a record a row, so that a batch is one gather."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from core.loader import EncodedSplit

READ_ROWS = 1 << 14
"""Rows that are decoded at once on their way into a matrix."""

SKIP_ROWS = 1 << 10
"""Fewer rows than these between two that are wanted are decoded with them."""

_WORD = np.dtype(np.int32)


@attrs.frozen(kw_only=True)
class Layout:
    """Where the columns lie in a record: numbers, then codes, then lists, then two-valued columns, a byte each.

    Attributes:
        numbers, codes: names of the float32 and of the int32 scalar columns.
        lists: name and width of the int32 list columns.
        flags: names of the bool columns.
    """

    numbers: tuple[str, ...]
    codes: tuple[str, ...]
    lists: tuple[tuple[str, int], ...]
    flags: tuple[str, ...]

    @classmethod
    def of(cls, schema: pa.Schema) -> Layout:
        """The layout of rows of this schema."""

        def scalars(kind: pa.DataType) -> tuple[str, ...]:
            return tuple(field.name for field in schema if field.type == kind)

        lists = tuple((f.name, f.type.list_size) for f in schema if pa.types.is_fixed_size_list(f.type))
        return cls(numbers=scalars(pa.float32()), codes=scalars(pa.int32()), lists=lists, flags=scalars(pa.bool_()))

    @property
    def words(self) -> int:
        """Width of a record."""
        return self._lists_at + sum(width for _, width in self.lists) + -(-len(self.flags) // _WORD.itemsize)

    @property
    def _lists_at(self) -> int:
        return len(self.numbers) + len(self.codes)

    @functools.cached_property
    def parts(self) -> tuple[tuple[str | tuple[str, ...], Any, slice], ...]:
        """Name or names, dtype and words of each part of a record that is viewed as one."""
        at = len(self.numbers)
        parts: list[tuple[str | tuple[str, ...], Any, slice]] = [
            (self.numbers, torch.float32, slice(0, at)),
            (self.codes, torch.int32, slice(at, self._lists_at)),
        ]
        at = self._lists_at
        for name, width in self.lists:
            parts.append((name, torch.int32, slice(at, at + width)))
            at += width
        parts.append((self.flags, torch.bool, slice(at, self.words)))
        return tuple(part for part in parts if part[0])


class Rows:
    """Records of one layout: `matrix` is an int32 array of shape (rows, words)."""

    def __init__(self, layout: Layout, matrix: np.ndarray) -> None:
        self.layout = layout
        self.matrix = matrix

    @classmethod
    def empty(cls, layout: Layout, rows: int) -> Rows:
        """Room for `rows` records."""
        return cls(layout, np.empty((rows, layout.words), dtype=_WORD))

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Rows:
        """The rows of a table, copied once."""
        rows = cls.empty(Layout.of(table.schema), table.num_rows)
        rows.fill(0, table)
        return rows

    @classmethod
    def of(cls, split: EncodedSplit) -> Rows:
        """A whole split."""
        rows = cls.empty(Layout.of(split.schema), split.rows)
        rows.load(split)
        return rows

    @classmethod
    def read(cls, split: EncodedSplit, numbers: np.ndarray) -> Rows:
        """The rows of these numbers, in this order. What lies close together is read together, and once."""
        rows = cls.empty(Layout.of(split.schema), len(numbers))
        places = np.argsort(numbers)
        ascending = numbers[places]
        low = 0
        while low < len(ascending):
            first = int(ascending[low])
            high = int(np.searchsorted(ascending, first + READ_ROWS))
            high = low + 1 + int(np.argmax(np.append(np.diff(ascending[low:high]) > SKIP_ROWS, True)))
            part = cls.from_arrow(split.read(first, int(ascending[high - 1]) + 1))
            rows.matrix[places[low:high]] = part.matrix[ascending[low:high] - first]
            low = high
        return rows

    def load(self, split: EncodedSplit) -> None:
        """Put a whole split in place, a part at a time: its rows are in memory once, and only a few of them twice."""
        for start in range(0, split.rows, READ_ROWS):
            self.fill(start, split.read(start, start + READ_ROWS))

    def fill(self, start: int, table: pa.Table) -> None:
        """Put the table's rows in place of those from `start` on."""
        for names, places in self._views(start, start + table.num_rows):
            for index, name in enumerate([names] if isinstance(names, str) else names):
                row = 0
                for chunk in table.column(name).chunks:
                    place = places[row : row + len(chunk)]
                    if isinstance(names, str):
                        place[:] = chunk.flatten().to_numpy(zero_copy_only=False).reshape(place.shape)
                    else:
                        place[:, index] = chunk.to_numpy(zero_copy_only=False)
                    row += len(chunk)

    def _views(self, start: int, stop: int) -> Iterator[tuple[str | tuple[str, ...], np.ndarray]]:
        for names, kind, words in self.layout.parts:
            part = self.matrix[start:stop, words]
            yield names, part.view({torch.float32: np.float32, torch.int32: np.int32, torch.bool: np.bool_}[kind])

    @classmethod
    def concatenate(cls, parts: list[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        return cls(parts[0].layout, np.concatenate([part.matrix for part in parts]))

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, rows: slice) -> Rows:
        """A view."""
        return Rows(self.layout, self.matrix[rows])

    def take(self, rows: np.ndarray) -> Rows:
        """A copy of these rows, in this order."""
        return Rows(self.layout, self.matrix.take(rows, axis=0))


def batch_columns(layout: Layout, matrix: Tensor, count: int) -> Iterator[dict[str, Tensor]]:
    """The columns of each of `count` batches of equal size, whose records follow each other in a matrix.

    Yields:
        Feature name to (rows,) or (rows, width): views of the matrix, on its device.
    """
    share = len(matrix) // count
    if not share:
        matrix = matrix.new_empty(matrix.shape)  # numpy's have strides that allow no views
    names: list[str] = []
    views: list[tuple[Tensor, ...]] = []
    for part_names, kind, words in layout.parts:
        part = matrix[:, words].view(kind)
        part = part.view(count, share, part.shape[1])
        if isinstance(part_names, str):
            names.append(part_names)
            views.append(part.unbind(0))
        else:
            names += part_names
            views += [column.unbind(0) for column in part.unbind(2)[: len(part_names)]]
    for batch in zip(*views, strict=True):
        yield dict(zip(names, batch, strict=True))
