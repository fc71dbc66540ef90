"""What is done to a partition's columns before they are summed up or encoded: parsing, filling from neighbours,
and finding the rows that are dropped.

All of it is a function of the partition, its first row number, and what lies at the edges of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.config.sections import Config
from core.errors import CoreError, DataError, Problem
from core.features.base import Feature, Metadata, Unparsable

_LOOKED_AT = 1024
"""Rows that show whether a column's texts repeat."""


@attrs.frozen
class Column:
    """A feature and where its config stands."""

    feature: Feature
    path: str

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.feature.name

    @property
    def strategy(self) -> str:
        """What happens where a value is missing."""
        return str(self.feature.preprocessing.missing_value_strategy)  # type: ignore[attr-defined]

    def problems(self, error: CoreError, row: int | None = None) -> list[Problem]:
        """The error's problems, with this feature's place (and the row, counted from 0) put before them."""
        where = f"{self.path} (column {self.feature.source!r}"
        where += ")" if row is None else f", row {row + 1})"
        return [attrs.evolve(problem, path=where) for problem in error.problems]


def columns_of(config: Config, *, outputs: bool = True) -> list[Column]:
    """The features of a config, inputs first."""
    inputs = [Column(feature, f"input_features.{feature.name}") for feature in config.input_features]
    if not outputs:
        return inputs
    return inputs + [Column(feature, f"output_features.{feature.name}") for feature in config.output_features]


def source_columns(columns: Sequence[Column], extra: str | None = None) -> list[str]:
    """The dataset's columns that these features read, each once."""
    names = [column.feature.source for column in columns]
    return list(dict.fromkeys([*names, extra] if extra is not None else names))


def parse(
    columns: Sequence[Column], table: pa.Table, row_numbers: np.ndarray, *, to_encode: bool = False
) -> tuple[dict[str, pa.Array], dict[str, list[Problem]]]:
    """Typed values by feature name, and the first problem of every feature that has values which cannot be read.

    Args:
        to_encode: values go to `Feature.encode` alone, so they may stay dictionaries for features that take them.
    """
    values: dict[str, pa.Array] = {}
    problems: dict[str, list[Problem]] = {}
    for column in columns:
        try:
            values[column.name] = _parsed(column.feature, table.column(column.feature.source), to_encode)
        except Unparsable as error:
            problems[column.name] = column.problems(error, int(row_numbers[error.row]))
    return values, problems


def _parsed(feature: Feature, column: pa.ChunkedArray, to_encode: bool) -> pa.Array:
    """`feature.parse`, of each distinct text once where texts repeat: it depends on nothing but the value."""
    if pa.types.is_dictionary(column.type):
        encoded = column.unify_dictionaries().combine_chunks()
        if len(encoded.dictionary) > len(encoded):
            return feature.parse(column.cast(column.type.value_type))
    elif pa.types.is_string(column.type) and _repeats(column):
        encoded = column.combine_chunks().dictionary_encode()
    else:
        return feature.parse(column)
    try:
        values = feature.parse(pa.chunked_array([encoded.dictionary]))
    except Unparsable as error:
        if pa.types.is_dictionary(column.type):  # which may hold a text that is in no row
            return feature.parse(column.cast(column.type.value_type))
        # Distinct texts stand in the order of their first rows, so the first bad text is in the first bad row.
        error.row = int(pc.index(encoded.indices, pa.scalar(error.row, pa.int32())).as_py())
        raise
    if to_encode and feature.takes_dictionaries and not encoded.null_count and not values.null_count:
        return pa.DictionaryArray.from_arrays(encoded.indices, values)
    return values.take(encoded.indices)


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether distinct values are few, judged by the first rows."""
    start = column.slice(0, _LOOKED_AT)
    return len(start) == _LOOKED_AT and len(start.unique()) * 4 < _LOOKED_AT


@attrs.frozen
class Edges:
    """The first and last value that is present in each partition, of the columns filled from their neighbours.

    Attributes:
        first, last: feature name to {first row number of the partition: array of one value}.
    """

    first: dict[str, dict[int, pa.Array]] = attrs.field(factory=dict, eq=False)
    last: dict[str, dict[int, pa.Array]] = attrs.field(factory=dict, eq=False)

    def add(self, name: str, first_row: int, values: pa.Array) -> None:
        """Take in a partition."""
        present = values.drop_null()
        if len(present):
            self.first.setdefault(name, {})[first_row] = present.slice(0, 1)
            self.last.setdefault(name, {})[first_row] = present.slice(len(present) - 1)

    def merge(self, other: Edges) -> None:
        """Take in the edges of other partitions."""
        for mine, others in ((self.first, other.first), (self.last, other.last)):
            for name, found in others.items():
                mine.setdefault(name, {}).update(found)

    def before(self, name: str, first_row: int) -> pa.Array | None:
        """The last value in the partitions before the one that starts there."""
        rows = [row for row in self.last.get(name, {}) if row < first_row]
        return self.last[name][max(rows)] if rows else None

    def after(self, name: str, first_row: int) -> pa.Array | None:
        """The first value in the partitions after it."""
        rows = [row for row in self.first.get(name, {}) if row > first_row]
        return self.first[name][min(rows)] if rows else None


def filled_from_neighbours(columns: Sequence[Column]) -> list[Column]:
    """The features whose missing values come from the rows around them."""
    return [column for column in columns if column.strategy in ("ffill", "bfill")]


def fill(columns: Sequence[Column], values: dict[str, pa.Array], edges: Edges, first_row: int) -> dict[str, pa.Array]:
    """`values` with the columns that want it filled from the rows around, those of other partitions included.

    What has no neighbour stays null; the feature's `encode` fills it.
    """
    result = dict(values)
    for column in filled_from_neighbours(columns):
        array = result[column.name]
        if array.null_count:
            if column.strategy == "ffill":
                array, beyond = pc.fill_null_forward(array), edges.before(column.name, first_row)
            else:
                array, beyond = pc.fill_null_backward(array), edges.after(column.name, first_row)
            result[column.name] = array if beyond is None else array.fill_null(beyond[0])
    return result


def kept_rows(
    columns: Sequence[Column], values: Mapping[str, pa.Array], rows: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Which rows no `drop_row` drops, bool; and how many each feature drops."""
    kept = np.ones(rows, bool)
    dropped: dict[str, int] = {}
    for column in columns:
        array = values[column.name]
        if column.strategy == "drop_row" and array.null_count:
            kept &= array.is_valid().to_numpy(zero_copy_only=False)
            dropped[column.name] = array.null_count
    return kept, dropped


def encode(
    columns: Sequence[Column],
    values: Mapping[str, pa.Array],
    metadata: Mapping[str, Metadata],
    row_numbers: np.ndarray,
) -> tuple[list[pa.Array], dict[str, list[Problem]]]:
    """The stored column of each feature, and the problems of those whose values cannot be encoded."""
    arrays: list[pa.Array] = []
    problems: dict[str, list[Problem]] = {}
    for column in columns:
        try:
            arrays.append(column.feature.encode(values[column.name], metadata[column.name]))
        except Unparsable as error:
            problems[column.name] = column.problems(error, int(row_numbers[error.row]))
        except DataError as error:
            problems[column.name] = column.problems(error)
    return arrays, problems


def storage_schema(columns: Sequence[Column], metadata: Mapping[str, Metadata]) -> pa.Schema:
    """The stored columns, named after their features."""
    return pa.schema([(column.name, column.feature.storage(metadata[column.name])) for column in columns])
