"""Unseen data, encoded with the metadata of a trained model: for prediction and evaluation."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
import pyarrow as pa

from core.config.sections import Config
from core.data import columnwise
from core.data.blocks import Reader
from core.data.columnwise import Column, Edges, columns_of, filled_from_neighbours, source_columns, storage_schema
from core.data.passes import FindEdges, used_rows
from core.data.sources import DataSource, FileBlock, FileSource, missing_columns, open_source
from core.data.splits import SPLITS, UNUSED, SplitSummary, membership, split_column
from core.errors import DataError
from core.features.base import Metadata, OutputFeature

BLOCK_ROWS = 1 << 16


class EncodedBlock(NamedTuple):
    """Consecutive rows of a dataset, encoded.

    Attributes:
        table: one column a feature, without nulls; where a row is not valid, or not labelled, the columns of the
            inputs, or of the targets, hold arbitrary values.
        valid: bool, one a row: False where an input that drops such rows has no value.
        labelled: the same of the targets; True everywhere where they were not asked for.
        rows: int64, the rows' numbers in the dataset, from 0.
    """

    table: pa.Table
    valid: np.ndarray
    labelled: np.ndarray
    rows: np.ndarray


@attrs.frozen(kw_only=True)
class InputBlock:
    """Consecutive rows of a dataset, yet to be read: what one worker does at a time.

    Attributes:
        read: brings their table, of the columns that are wanted.
        first_row: number of the first one in the dataset; None where that needed counting what comes before.
        splits: of each row, 0 where it is wanted, else `UNUSED`; None where all are.
    """

    read: Reader
    first_row: int | None
    splits: np.ndarray | None = attrs.field(eq=False)

    def slices(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[pa.Table, int, np.ndarray | None]]:
        """The rows, at most `rows` at a time: the table, the number of its first row in the block, its splits."""
        table = self.read()
        for start in range(0, table.num_rows, rows):
            splits = None if self.splits is None else self.splits[start : start + rows]
            yield table.slice(start, rows), start, splits

    @property
    def of_file(self) -> bool:
        """Whether its rows lie in a file, rather than in memory."""
        return isinstance(self.read, FileBlock)

    def portable(self) -> InputBlock:
        """The same block to be sent elsewhere: rows that are in memory travel, and without the rest of their frame."""
        if self.of_file:
            return self
        table = self.read()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return attrs.evolve(self, read=functools.partial(_unpacked, sink.getvalue().to_pybytes()))


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


@attrs.frozen(kw_only=True)
class Encoding:
    """Encodes the rows of a dataset wherever they were read. It can be pickled."""

    columns: Sequence[Column]
    metadata: Mapping[str, Metadata]
    edges: Edges

    def __call__(self, table: pa.Table, first_row: int, splits: np.ndarray | None) -> EncodedBlock:
        """The rows of a table that are wanted.

        Args:
            first_row: number of its first row in the dataset, from which others are counted.
            splits: as those of an `InputBlock`.

        Raises:
            DataError: values cannot be read.
        """
        used, _, rows = used_rows(table, splits, 0)
        return _block(self.columns, self.metadata, used, rows + first_row, self.edges, first_row)


@attrs.frozen(kw_only=True)
class Inputs:
    """A dataset for a model that was trained, cut into blocks that can be read and encoded apart.

    Attributes:
        source: with the columns that are wanted.
        blocks: in row order; those without a row that is wanted are left out.
    """

    source: DataSource
    blocks: list[InputBlock]
    encoding: Encoding


def open_inputs(
    config: Config,
    metadata: Mapping[str, Metadata],
    dataset: Any,
    *,
    outputs: bool = False,
    split: str | None = None,
    seed: int = 0,
    carried: Sequence[tuple[str, str]] = (),
    block_rows: int = BLOCK_ROWS,
) -> Inputs:
    """Every row of a dataset, in order, as blocks that are yet to be read.

    Args:
        config: of the model.
        metadata: of its features.
        dataset: as `open_source` takes it, or what that returned.
        outputs: encode the targets too.
        split: only the rows that `preprocess` would put there: "training", "validation" or "test"; None for all.
        seed: of that split.
        carried: columns to read beside those of the features, each with the path of what wants it.
        block_rows: rows that will be encoded at a time.

    Raises:
        DataError: a column is missing, the split needs values that cannot be read, or there are no rows, as far as
            that can be seen.
    """
    source: DataSource = dataset if isinstance(dataset, DataSource) else open_source(dataset)
    columns = columns_of(config, outputs=outputs)
    by_split = split_column(config.preprocessing.split) if split is not None else None
    wanted = [*((column.path, column.feature.source) for column in columns), *carried]
    if problems := missing_columns(source, wanted + ([("preprocessing.split.column", by_split)] if by_split else [])):
        raise DataError(problems)
    names = list(dict.fromkeys([*source_columns(columns), *(name for _, name in carried)]))
    readers = _with_dictionaries(source.select(names), columns, carried).blocks(None)
    neighbours = filled_from_neighbours(columns)
    splits, edges, starts = None, Edges(), None
    if split is not None:
        placing = source.select([by_split] if by_split else names[:1]).blocks(None)
        splits, starts = _membership(config, placing, split, seed, block_rows)
    if neighbours:
        filled = source.select(source_columns(neighbours)).blocks(None)
        edges, starts = _edges(neighbours, filled, splits, block_rows)
    if not readers or (starts is not None and not starts[-1]):
        raise no_rows(source)
    blocks = []
    for number, read in enumerate(readers):
        first_row = None if starts is None else starts[number]
        codes = None if splits is None or starts is None else splits[starts[number] : starts[number + 1]]
        if codes is None or (codes != UNUSED).any():
            blocks.append(InputBlock(read=read, first_row=first_row, splits=codes))
    encoding = Encoding(columns=columns, metadata=metadata, edges=edges)
    return Inputs(source=source.select(names), blocks=blocks, encoding=encoding)


def _with_dictionaries(source: DataSource, columns: Sequence[Column], carried: Sequence[tuple[str, str]]) -> DataSource:
    """The source, with what only features that take dictionaries read as such."""
    if not isinstance(source, FileSource):
        return source
    others = {column.feature.source for column in columns if not column.feature.takes_dictionaries}
    others |= {name for _, name in carried}
    return source.with_dictionaries({column.feature.source for column in columns} - others)


def encode_inputs(
    config: Config,
    metadata: Mapping[str, Metadata],
    dataset: Any,
    *,
    outputs: bool = False,
    split: str | None = None,
    seed: int = 0,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[EncodedBlock]:
    """Every row of a dataset, in order, as a model trained with `metadata` wants it; see `open_inputs`.

    Args:
        block_rows: most rows of a block.

    Raises:
        DataError: a feature's column is missing, or holds values that cannot be read. At once where the columns
            show it, else with the block.
    """
    inputs = open_inputs(config, metadata, dataset, outputs=outputs, split=split, seed=seed, block_rows=block_rows)
    return _in_order(inputs, block_rows)


def _in_order(inputs: Inputs, block_rows: int) -> Iterator[EncodedBlock]:
    next_row = 0
    for block in inputs.blocks:
        first_row = next_row if block.first_row is None else block.first_row
        for table, start, splits in block.slices(block_rows):
            next_row = first_row + start + table.num_rows
            encoded = inputs.encoding(table, first_row + start, splits)
            if len(encoded.rows):
                yield encoded
    if inputs.blocks and not next_row:
        raise no_rows(inputs.source)


def no_rows(source: DataSource) -> DataError:
    """The error for a dataset without rows."""
    return DataError("the dataset has no rows", path=source.name)


def _membership(
    config: Config, readers: Sequence[Reader], split: str, seed: int, block_rows: int
) -> tuple[np.ndarray, list[int]]:
    """0 for the rows that are wanted, else `UNUSED`; and the first row of each block, with the number of all rows."""
    summaries: list[SplitSummary] = []
    starts = [0]
    for read in readers:
        table = read()
        for start in range(0, table.num_rows, block_rows):
            part = table.slice(start, block_rows)
            summaries.append(SplitSummary(config.preprocessing.split, part, starts[-1] + start))
        starts.append(starts[-1] + table.num_rows)

    def merged(left: SplitSummary, right: SplitSummary) -> SplitSummary:
        left.merge(right)
        return left

    if not summaries:
        return np.empty(0, np.int8), starts
    codes = membership(config.preprocessing, functools.reduce(merged, summaries), seed).codes
    return np.where(codes == SPLITS.index(split), 0, UNUSED).astype(np.int8), starts


def _edges(
    neighbours: Sequence[Column], readers: Sequence[Reader], splits: np.ndarray | None, block_rows: int
) -> tuple[Edges, list[int]]:
    """The edges of each slice of each block; and the first row of each block, with the number of all rows."""
    edges = Edges()
    starts = [0]
    for read in readers:
        table = read()
        for start in range(0, table.num_rows, block_rows):
            found = FindEdges(neighbours, splits)(table.slice(start, block_rows), starts[-1] + start)
            edges.merge(found)
        starts.append(starts[-1] + table.num_rows)
    return edges, starts


def _block(
    columns: Sequence[Column],
    metadata: Mapping[str, Metadata],
    table: pa.Table,
    rows: np.ndarray,
    edges: Edges,
    first_row: int,
) -> EncodedBlock:
    values, problems = columnwise.parse(columns, table, rows, to_encode=True)
    if problems:
        raise DataError(problem for found in problems.values() for problem in found)
    values = columnwise.fill(columns, values, edges, first_row)
    # A target that is missing must not cost the row its prediction, so inputs and targets are told apart.
    targets = [column for column in columns if isinstance(column.feature, OutputFeature)]
    inputs = [column for column in columns if column not in targets]
    (left, valid), (right, labelled) = (_encoded(part, metadata, values, rows) for part in (inputs, targets))
    schema = storage_schema(columns, metadata)
    return EncodedBlock(pa.table([*left, *right], schema=schema), valid, labelled, rows)


def _encoded(
    columns: Sequence[Column], metadata: Mapping[str, Metadata], values: Mapping[str, pa.Array], rows: np.ndarray
) -> tuple[list[pa.Array], np.ndarray]:
    """The stored columns, and the rows that none of these features drops; in the others a value is arbitrary."""
    kept, dropped = columnwise.kept_rows(columns, values, len(rows))
    known = {name: array.filter(pa.array(kept)) for name, array in values.items()} if dropped else values
    arrays, problems = columnwise.encode(columns, known, metadata, rows[kept])
    if problems:
        raise DataError(problem for found in problems.values() for problem in found)
    if not dropped:
        return arrays, kept
    if not kept.any():
        return [_zeros(field.type, len(rows)) for field in storage_schema(columns, metadata)], kept
    # A row that is dropped repeats the one before it that is not, or the first.
    source_rows = pa.array(np.maximum(np.cumsum(kept) - 1, 0))
    return [array.take(source_rows) for array in arrays], kept


def _zeros(kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * kind.list_size, np.int32)), type=kind)
    return pa.array(np.zeros(rows, np.int8)).cast(kind)
