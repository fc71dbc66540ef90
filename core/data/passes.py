"""The functions of one partition that preprocessing is made of. A processor decides where and when they run."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.data import columnwise
from core.data.cache import Writer
from core.data.columnwise import Column, Edges
from core.data.processed import ROW, Part
from core.data.splits import SPLITS, UNUSED
from core.errors import Problem
from core.features.base import Metadata, Summary

ROW_GROUP_ROWS = 1 << 14
_REMEMBERED_BYTES = 1 << 27


@attrs.frozen(eq=False)
class Block:
    """A partition's rows that are used, typed and filled from their neighbours.

    Attributes:
        values: by feature name.
        splits: of each row, int8; `UNUSED` where it is dropped.
        row_numbers: in the dataset, from 0.
        dropped: rows that each feature's `drop_row` dropped.
        problems: of features whose values cannot be read; then there are no values.
    """

    values: dict[str, pa.Array]
    splits: np.ndarray
    row_numbers: np.ndarray
    dropped: dict[str, int]
    problems: dict[str, list[Problem]]


class Prepare:
    """Turns a partition into a `Block`. Remembers the blocks of this process, within bounds: two passes want them."""

    def __init__(self, columns: Sequence[Column], splits: np.ndarray, edges: Edges) -> None:
        self.columns = columns
        self.splits = splits
        self.edges = edges
        self._forget()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.columns, self.splits, self.edges

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.columns, self.splits, self.edges = state
        self._forget()

    def __call__(self, table: pa.Table, first_row: int) -> Block:
        """The block of the partition that starts at `first_row`."""
        if (block := self._remembered.pop(first_row, None)) is None:
            block = self._prepared(table, first_row)
        return block

    def remember(self, first_row: int, block: Block) -> None:
        """Keep a block for the next call of the same partition."""
        size = sum(array.nbytes for array in block.values.values())
        with self._lock:
            self._room -= size
            if self._room >= 0:
                self._remembered[first_row] = block

    def _forget(self) -> None:
        self._remembered: dict[int, Block] = {}
        self._room = _REMEMBERED_BYTES
        self._lock = threading.Lock()

    def _prepared(self, table: pa.Table, first_row: int) -> Block:
        table, splits, row_numbers = used_rows(table, self.splits, first_row)
        values, problems = columnwise.parse(self.columns, table, row_numbers)
        if problems:
            return Block({}, splits, row_numbers, {}, problems)
        values = columnwise.fill(self.columns, values, self.edges, first_row)
        kept, dropped = columnwise.kept_rows(self.columns, values, len(splits))
        if dropped:
            splits = np.where(kept, splits, np.int8(UNUSED))
        return Block(values, splits, row_numbers, dropped, {})


def used_rows(table: pa.Table, splits: np.ndarray | None, first_row: int) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """The rows of a partition that belong to some split, their splits, and their numbers in the dataset.

    `splits` are those of all rows of the dataset; None puts every row into the first.
    """
    row_numbers = np.arange(first_row, first_row + table.num_rows)
    if splits is None:
        return table, np.zeros(table.num_rows, np.int8), row_numbers
    splits = splits[first_row : first_row + table.num_rows]
    used = splits != UNUSED
    if used.all():
        return table, splits, row_numbers
    return table.filter(pa.array(used)), splits[used], row_numbers[used]


@attrs.frozen
class FindEdges:
    """The edges of a partition, for columns that are filled from their neighbours."""

    columns: Sequence[Column]
    splits: np.ndarray | None = attrs.field(eq=False)

    def __call__(self, table: pa.Table, first_row: int) -> Edges:
        table, _, row_numbers = used_rows(table, self.splits, first_row)
        values, _ = columnwise.parse(self.columns, table, row_numbers)  # the next pass tells the problems
        edges = Edges()
        for name, array in values.items():
            edges.add(name, first_row, array)
        return edges


class Summaries:
    """What is known of a dataset's rows, partition by partition.

    Attributes:
        features: by the name of the feature whose metadata it becomes; tied features share one.
        rows: rows that are used, those dropped included; training: rows that are left for training.
        dropped: rows that each feature's `drop_row` drops.
        problems: the first of each feature whose values cannot be read.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.features: dict[str, Summary] = {
            column.name: column.feature.summary() for column in columns if shared_name(column) == column.name
        }
        self.rows = 0
        self.training = 0
        self.dropped: dict[str, int] = {}
        self.problems: dict[str, list[Problem]] = {}

    def merge(self, other: Summaries) -> None:
        """Take in the rows that come after these."""
        for name, summary in other.features.items():
            self.features[name].merge(summary)
        self.rows += other.rows
        self.training += other.training
        for name, count in other.dropped.items():
            self.dropped[name] = self.dropped.get(name, 0) + count
        self.problems = other.problems | self.problems


def shared_name(column: Column) -> str:
    """The feature whose summary and metadata a feature uses: its own, or that of the one it is tied to."""
    return getattr(column.feature, "tied", None) or column.name


@attrs.frozen
class Summarise:
    """Sums up a partition: training rows, and all rows for the features that ask for them."""

    prepare: Prepare

    def __call__(self, table: pa.Table, first_row: int) -> Summaries:
        block = self.prepare(table, first_row)
        result = Summaries(self.prepare.columns)
        result.rows, result.dropped, result.problems = len(block.splits), block.dropped, block.problems
        if block.problems:
            return result
        rows = {"training": _where(block.splits == 0), "all": _where(block.splits != UNUSED)}
        result.training = len(rows["training"])
        for column in self.prepare.columns:
            values = _taken(block.values[column.name], rows[column.feature.summarises])
            result.features[shared_name(column)].update(values)
        if table.num_rows:  # the next partition starts at the same row as an empty one
            self.prepare.remember(first_row, block)
        return result


@attrs.frozen(kw_only=True)
class Encode:
    """Encodes a partition and writes its rows of each split as a Parquet part.

    Attributes:
        dataset: number of the dataset among those given, for the parts' names.
    """

    prepare: Prepare
    metadata: Mapping[str, Metadata] = attrs.field(eq=False)
    writer: Writer
    dataset: int

    def __call__(self, table: pa.Table, first_row: int) -> tuple[dict[str, Part], dict[str, list[Problem]]]:
        block = self.prepare(table, first_row)
        columns = self.prepare.columns
        values, splits, row_numbers = block.values, block.splits, block.row_numbers
        if block.dropped:
            kept = splits != UNUSED
            rows = _where(kept)
            values = {name: _taken(array, rows) for name, array in values.items()}
            splits, row_numbers = splits[kept], row_numbers[kept]
        arrays, problems = columnwise.encode(columns, values, self.metadata, row_numbers)
        if problems:
            return {}, problems
        arrays = [pa.array(row_numbers), *arrays]
        parts = {}
        for index, split in enumerate(SPLITS):
            rows = _where(splits == index)
            if len(rows):
                name = f"{split}-{self.dataset}-{first_row:012d}.parquet"
                table = pa.table([_taken(array, rows) for array in arrays], names=[ROW, *values])
                parts[split] = self.writer.part(name, len(rows), parquet(table))
        return parts, {}


def _where(mask: np.ndarray) -> pa.Array:
    """The positions where `mask` is true, as `take` wants them."""
    return pa.array(np.flatnonzero(mask).astype(np.uint32))


def _taken(values: pa.Array, positions: pa.Array) -> pa.Array:
    """`values.take` of ascending positions, for nothing where they are all. Faster than `filter`."""
    return values if len(positions) == len(values) else values.take(positions)


def parquet(table: pa.Table) -> pa.Buffer:
    """The table as a Parquet file. What is written and loaded fastest: no compression, dictionaries only of tokens."""
    stream = pa.BufferOutputStream()
    lists = [field.name for field in table.schema if pa.types.is_fixed_size_list(field.type)]
    pq.write_table(
        table,
        stream,
        row_group_size=ROW_GROUP_ROWS,
        compression="none",
        use_dictionary=[f"{name}.list.element" for name in lists],
        write_statistics=False,
    )
    return stream.getvalue()
