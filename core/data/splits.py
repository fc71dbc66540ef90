"""Which rows train, validate and test.

Membership is a function of the seed, the row's number and, where the config asks for it, one column: never of how
the rows are partitioned. A partition is summed up by `SplitSummary`; `membership` then decides for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.config.sections import (
    DatetimeSplit,
    FixedSplit,
    HashSplit,
    Preprocessing,
    RandomSplit,
    Split,
    StratifySplit,
)
from core.data.permutation import mix, rank
from core.data.times import parse_times
from core.errors import DataError

SPLITS = ("training", "validation", "test")
UNUSED = -1
_SAMPLE, _SPLIT = 1, 2
"""Streams of the seed, so that a sample and a split are independent draws."""

_FIXED = {
    "0": 0, "training": 0, "train": 0,
    "1": 1, "validation": 1, "valid": 1, "vali": 1, "val": 1,
    "2": 2, "test": 2, "testing": 2,
}  # fmt: skip
_NO_CLASS = "\0"
"""Rows without a value are a class of their own, spread evenly like the others."""
_FIXED_LEGAL = "0, 1, 2 or training, validation, test"


def split_column(split: Split) -> str | None:
    """The column that a split needs, if any."""
    return getattr(split, "column", None)


class SplitSummary:
    """What is needed of each row to place it: its number, and a code made of the split column's value.

    Attributes:
        rows: number of rows.
        codes: one array a partition: split numbers (fixed), hashes (hash), microseconds (datetime), or class numbers
            (stratify), whose names are in `classes`.
    """

    def __init__(self, split: Split, table: pa.Table, first_row: int) -> None:
        self.rows = table.num_rows
        self.codes: list[np.ndarray] = []
        self.classes: list[str] = []
        if column := split_column(split):
            values = table.column(column)
            if isinstance(split, StratifySplit):
                values = _texts(values).fill_null(_NO_CLASS)
            _refuse_nulls(values, column, first_row)
            codes, self.classes = _code(split, values, column, first_row)
            self.codes.append(codes)

    def merge(self, other: SplitSummary) -> None:
        """Take in the rows that come after these."""
        self.rows += other.rows
        position = {name: index for index, name in enumerate(self.classes)}
        for name in other.classes:
            position.setdefault(name, len(position))
        renumbered = np.array([position[name] for name in other.classes], np.int64)
        self.classes = list(position)
        self.codes += [renumbered[codes] for codes in other.codes] if other.classes else other.codes


@attrs.frozen
class Membership:
    """The split of every row: 0, 1, 2, or `UNUSED`.

    Attributes:
        sizes: rows in training, validation and test.
        codes: int8, one a row.
    """

    codes: np.ndarray = attrs.field(eq=False)

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each split."""
        return {name: int(np.count_nonzero(self.codes == index)) for index, name in enumerate(SPLITS)}


def membership(preprocessing: Preprocessing, summary: SplitSummary, seed: int) -> Membership:
    """The split of every row of a dataset, sampled before it is divided.

    Raises:
        DataError: training would have no rows.
    """
    split = preprocessing.split
    chosen = sample(preprocessing, summary.rows, seed)
    codes = np.concatenate(summary.codes) if summary.codes else np.empty(0, np.int64)
    if len(codes):
        codes = codes[chosen]
    result = np.full(summary.rows, UNUSED, np.int8)
    result[chosen] = _divided(split, chosen, codes, seed)
    member = Membership(result)
    if not member.sizes["training"]:
        raise DataError(
            "no rows are left for training",
            path="preprocessing.split",
            found=member.sizes,
            hint="give more rows, or a larger first fraction" if not isinstance(split, FixedSplit) else "",
        )
    return member


def sample(preprocessing: Preprocessing, rows: int, seed: int) -> np.ndarray:
    """The numbers of the rows that `sample_ratio` and `sample_size` keep, ascending."""
    size = largest_remainders([preprocessing.sample_ratio, 1 - preprocessing.sample_ratio], rows)[0]
    size = min(size, preprocessing.sample_size or size)
    numbers = np.arange(rows)
    return numbers if size == rows else numbers[rank(numbers, rows, seed, _SAMPLE) < size]


def largest_remainders(probabilities: Sequence[float], rows: int) -> list[int]:
    """Whole numbers that sum to `rows`, each within one of its exact share; the earlier wins a tie."""
    shares = [Fraction(repr(p)) for p in probabilities]
    total = sum(shares)
    exact = [share * rows / total for share in shares]
    sizes = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: sizes[index] - exact[index])
    for index in by_remainder[: rows - sum(sizes)]:
        sizes[index] += 1
    return sizes


def _divided(split: Split, rows: np.ndarray, codes: np.ndarray, seed: int) -> np.ndarray:
    """Split numbers of the rows, given by number and code."""
    match split:
        case RandomSplit(probabilities=probabilities):
            places = rank(np.arange(len(rows)), len(rows), seed, _SPLIT)
            return _cut(places, probabilities)
        case StratifySplit(probabilities=probabilities):
            order = np.lexsort((rows, mix(rows, seed, _SPLIT), codes))
            return _cut_groups(order, codes[order], probabilities)
        case DatetimeSplit(probabilities=probabilities):
            places = np.empty(len(rows), np.int64)
            places[np.lexsort((rows, codes))] = np.arange(len(rows))
            return _cut(places, probabilities)
        case HashSplit(probabilities=probabilities):
            bounds = np.cumsum(np.array(probabilities[:2]) * 2.0**53)
            return np.searchsorted(bounds, codes, side="right").astype(np.int8)
        case _:
            return codes.astype(np.int8)


def _cut(places: np.ndarray, probabilities: Sequence[float]) -> np.ndarray:
    bounds = np.cumsum(largest_remainders(probabilities, len(places)))[:2]
    return np.searchsorted(bounds, places, side="right").astype(np.int8)


def _cut_groups(order: np.ndarray, groups: np.ndarray, probabilities: Sequence[float]) -> np.ndarray:
    """`_cut` in each run of equal `groups`, which are those of `order`."""
    result = np.empty(len(order), np.int8)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    for start, stop in zip(starts, np.append(starts[1:], len(groups)), strict=True):
        result[order[start:stop]] = _cut(np.arange(stop - start), probabilities)
    return result


def _code(split: Split, values: pa.ChunkedArray, column: str, first_row: int) -> tuple[np.ndarray, list[str]]:
    if isinstance(split, DatetimeSplit):
        return parse_times(values, column, first_row), []
    encoded = _texts(values).combine_chunks().dictionary_encode()
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    names = cast("list[str]", encoded.dictionary.to_pylist())
    if isinstance(split, StratifySplit):
        return indices.astype(np.int64), names
    if isinstance(split, HashSplit):
        import pandas as pd

        # The upper 53 bits: exact as float64.
        hashes = pd.util.hash_array(np.array(names, object), categorize=False) >> np.uint64(11)
        return hashes.astype(np.int64)[indices], []
    known = np.array([_FIXED.get(name.strip().lower().removesuffix(".0"), UNUSED) for name in names], np.int64)
    codes = known[indices] if len(names) else np.empty(0, np.int64)
    if len(wrong := np.flatnonzero(codes == UNUSED)):
        raise DataError(
            f"column {column!r}, row {first_row + wrong[0] + 1}: not the name of a split",
            path="preprocessing.split.column",
            found=names[indices[wrong[0]]],
            expected=_FIXED_LEGAL,
        )
    return codes, []


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        texts = [None if value is None else str(value) for value in values.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _refuse_nulls(values: pa.ChunkedArray, column: str, first_row: int) -> None:
    if values.null_count:
        row: Any = pc.index(pc.is_null(values), True).as_py()
        raise DataError(
            f"column {column!r} has no value in row {first_row + row + 1}",
            path="preprocessing.split.column",
            hint="every row needs one to be placed in a split",
        )
