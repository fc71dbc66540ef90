"""Unseen data, encoded with the metadata of a trained model: for prediction and evaluation."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from core.config.sections import Config
from core.data import columnwise
from core.data.columnwise import Column, Edges, columns_of, filled_from_neighbours, source_columns, storage_schema
from core.data.passes import FindEdges, used_rows
from core.data.sources import DataSource, missing_columns, open_source
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
    """Every row of a dataset, in order, as a model trained with `metadata` wants it.

    Args:
        config: of the model.
        metadata: of its features.
        dataset: as `open_source` takes it, or what that returned.
        outputs: encode the targets too.
        split: only the rows that `preprocess` would put there: "training", "validation" or "test"; None for all.
        seed: of that split.
        block_rows: most rows of a block.

    Raises:
        DataError: a feature's column is missing, or holds values that cannot be read. At once where the columns
            show it, else with the block.
    """
    source: DataSource = dataset if isinstance(dataset, DataSource) else open_source(dataset)
    columns = columns_of(config, outputs=outputs)
    extra = split_column(config.preprocessing.split) if split is not None else None
    wanted = [(column.path, column.feature.source) for column in columns]
    if problems := missing_columns(source, wanted + ([("preprocessing.split.column", extra)] if extra else [])):
        raise DataError(problems)
    source = source.select(source_columns(columns, extra))
    splits = _splits(config, source, split, seed)
    return _blocks(columns, metadata, source, splits, block_rows)


def _splits(config: Config, source: DataSource, split: str | None, seed: int) -> np.ndarray | None:
    """0 for the rows that are wanted, else `UNUSED`; None where all are."""
    if split is None:
        return None
    summaries = [
        SplitSummary(config.preprocessing.split, table, first_row) for table, first_row in _tables(source, BLOCK_ROWS)
    ]
    if not summaries:
        return None

    def merged(left: SplitSummary, right: SplitSummary) -> SplitSummary:
        left.merge(right)
        return left

    codes = membership(config.preprocessing, functools.reduce(merged, summaries), seed).codes
    return np.where(codes == SPLITS.index(split), 0, UNUSED).astype(np.int8)


def _tables(source: DataSource, block_rows: int) -> Iterator[tuple[pa.Table, int]]:
    """The source's rows in blocks, each with its first row's number."""
    first_row = 0
    for read in source.blocks(None):
        table = read()
        for start in range(0, table.num_rows, block_rows):
            yield table.slice(start, block_rows), first_row + start
        first_row += table.num_rows
    if not first_row:
        raise DataError("the dataset has no rows", path=source.name)


def _blocks(
    columns: Sequence[Column],
    metadata: Mapping[str, Metadata],
    source: DataSource,
    splits: np.ndarray | None,
    block_rows: int,
) -> Iterator[EncodedBlock]:
    edges = _edges(columns, source, splits, block_rows)
    for table, first_row in _tables(source, block_rows):
        rows, _, row_numbers = used_rows(table, splits, first_row)
        if len(row_numbers):
            yield _block(columns, metadata, rows, row_numbers, edges, first_row)


def _edges(columns: Sequence[Column], source: DataSource, splits: np.ndarray | None, block_rows: int) -> Edges:
    edges = Edges()
    if neighbours := filled_from_neighbours(columns):
        for table, first_row in _tables(source, block_rows):
            edges.merge(FindEdges(neighbours, splits)(table, first_row))
    return edges


def _block(
    columns: Sequence[Column],
    metadata: Mapping[str, Metadata],
    table: pa.Table,
    rows: np.ndarray,
    edges: Edges,
    first_row: int,
) -> EncodedBlock:
    values, problems = columnwise.parse(columns, table, rows)
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
