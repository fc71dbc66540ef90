"""What a column may look like to a feature type, whatever it came from."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from core.errors import DataError


def plain(table: pa.Table) -> pa.Table:
    """The table with nulls for NaN, `string` for every kind of text, and dictionaries decoded."""
    for index, field in enumerate(table.schema):
        column = plain_column(table.column(index))
        if column is not table.column(index):
            table = table.set_column(index, field.name, column)
    return table


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """One column of `plain`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_column(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        missing = pc.is_nan(column)
        if pc.any(missing).as_py():
            return pc.if_else(missing, pa.scalar(None, kind), column)
    return column


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that `plain_column` gives a column of type `kind`."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def array_of(values: Any, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """Python, numpy or pandas values as a column; as text where they are of several kinds.

    `kind` is the column's type where more than these values decide it; it holds them, or is text.
    """
    try:
        array = pa.array(values, type=kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        array = pa.array([None if _missing(value) else str(value) for value in values], pa.string())
    return plain_column(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))


def common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The type that holds the values of all of these; text where there is no other."""
    fields = [pa.schema([("c", kind)]) for kind in kinds]
    try:
        return pa.unify_schemas(fields, promote_options="permissive").field("c").type
    except pa.ArrowTypeError:
        return pa.string()


def _missing(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value))


def table_of_records(records: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None) -> pa.Table:
    """A table of rows given as mappings; a key that a row lacks is null."""
    columns = list(names) if names is not None else list(dict.fromkeys(key for record in records for key in record))
    return pa.table({str(name): array_of([record.get(name) for record in records]) for name in columns})


def table_of_columns(columns: Mapping[Any, Any], where: str) -> pa.Table:
    """A table of columns given as sequences of one length.

    Raises:
        DataError: they have several lengths, or one name twice.
    """
    refuse_duplicates([str(name) for name in columns], where)
    arrays = {str(name): array_of(values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError("columns differ in length", path=where, found=lengths)
    return pa.table(arrays)


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Raise a DataError where a column name, other than the empty one, occurs twice."""
    seen: set[str] = set()
    twice = {name for name in names if name and (name in seen or seen.add(name))}  # type: ignore[func-returns-value]
    if twice:
        listed = ", ".join(map(repr, sorted(twice)))
        raise DataError(f"several columns have the same name: {listed}", path=where, hint="give each its own name")


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint with the most similar name, or with all of them."""
    names = list(names)
    folded = {candidate.casefold(): candidate for candidate in names}
    if close := difflib.get_close_matches(name.casefold(), folded, n=1):
        return f"did you mean {folded[close[0]]!r}?"
    shown = ", ".join(map(repr, names[:20]))
    return f"its columns are {shown}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")
