"""Typed values out of whatever a dataset's column holds. Arrow does the work; no value is touched in Python."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import TYPE_CHECKING

from core.features.base import Unparsable

if TYPE_CHECKING:
    import pyarrow as pa


def single(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array, dictionaries decoded."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def texts(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values as text without blanks around it, null where nothing is left.

    A value has one spelling whatever format it came in: whole numbers have no fraction, though pandas writes
    integers as 1.0 once one of them is missing, and truth values are True and False.

    Raises:
        Unparsable: the column holds lists, structures or other things that are not one value a row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = single(column)
    kind = values.type
    if pa.types.is_boolean(kind):
        return pc.if_else(values, pa.scalar("True"), pa.scalar("False"))
    if pa.types.is_nested(kind):
        raise _not_one_value(values, "text, a number or a truth value")
    if pa.types.is_float16(kind):
        values = values.cast(pa.float32())
    try:
        values = values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_one_value(values, "text in UTF-8") from None
    values = pc.utf8_trim_whitespace(values)
    values = pc.replace_substring_regex(values, r"^(-?[0-9]+)\.0$", r"\1")
    missing = pc.equal(values, "")
    if pa.types.is_floating(kind):
        missing = pc.or_(missing, pc.equal(values, "nan"))
    return pc.if_else(missing, pa.scalar(None, pa.string()), values)


def numbers(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values as float64, null where blank or NaN.

    Raises:
        Unparsable: the first value that is not a finite number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = single(column)
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        raise _not_one_value(values, "a number")
    if pa.types.is_boolean(kind):
        result = values.cast(pa.int8()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        result = values.cast(pa.float64(), safe=False)
    else:
        result = _parsed(values)
    result = pc.if_else(pc.is_nan(result), pa.scalar(None, pa.float64()), result)
    if (row := pc.index(pc.is_inf(result), True).as_py()) >= 0:
        raise _not_a_number(row, values[row].as_py())
    return result


def _parsed(values: pa.Array) -> pa.Array:
    """Numbers out of text. Blanks and plus signs are rare, so they are looked for only where a first try fails."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with contextlib.suppress(pa.ArrowInvalid):
        return values.cast(pa.float64())
    trimmed = pc.replace_substring_regex(texts(values), r"^\+([0-9.])", r"\1")
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        row = _first_failure(trimmed, pa.float64())
        raise _not_a_number(row, values[row].as_py()) from None


def counts(values: pa.Array) -> tuple[Counter[str], int]:
    """How often each value occurs, and the number of nulls."""
    import pyarrow.compute as pc

    found = pc.value_counts(values.drop_null())
    return Counter(dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))), (
        values.null_count
    )


def labels(names: list[str]) -> pa.Array:
    """Class names as the values they stand for: whole numbers where all of them are, else text."""
    import pyarrow as pa

    numbers = [int(name) for name in names if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", name)]
    return pa.array(numbers, pa.int64()) if len(numbers) == len(names) else pa.array(names, pa.string())


def by_frequency(counts: Counter[str]) -> list[str]:
    """The most frequent first, equally frequent ones in order of their code points."""
    return sorted(counts, key=lambda value: (-counts[value], value))


def codes(values: pa.Array, vocabulary: list[str]) -> pa.Array:
    """Each value's place in the vocabulary, int32, null where it has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        return codes(values.dictionary, vocabulary).take(values.indices)
    return pc.index_in(values, pa.array(vocabulary, pa.string())).cast(pa.int32())


def _first_failure(values: pa.Array, kind: pa.DataType) -> int:
    """The first row that cannot be cast: a binary search, as Arrow does not tell."""
    import pyarrow as pa

    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            values.slice(good, middle - good).cast(kind)
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    return good


def _not_a_number(row: int, found: object) -> Unparsable:
    hint = "Leave the cell empty where the value is not known; a column of words is of `type: category`."
    return Unparsable(row, found, "a finite number", hint=hint)


def _not_one_value(values: pa.Array, expected: str) -> Unparsable:
    import pyarrow.compute as pc

    row = max(pc.index(pc.is_valid(values), True).as_py(), 0)
    return Unparsable(row, values[row].as_py() if len(values) else str(values.type), expected)
