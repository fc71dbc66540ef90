"""Dates and times of many spellings, as microseconds since 1970 that sort."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa

from core.errors import DataError

_BOUNDS, _UNITS = (1e11, 1e14, 1e17), (1_000_000, 1000, 1)
"""A number below a bound counts in units of so many microseconds: seconds until the year 5138, then finer ones."""


def parse_times(values: pa.ChunkedArray, column: str, first_row: int) -> np.ndarray:
    """Sortable int64 of a column without nulls: times, dates, epoch numbers, or text that is one of them.

    Every value is read by itself: a format guessed from its neighbours would depend on the partition.

    Raises:
        DataError: a value is none of them.
    """
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return cast(np.ndarray, values.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy())
    if pa.types.is_time(kind):
        return cast(np.ndarray, values.cast(pa.time64("us"), safe=False).cast(pa.int64()).to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _epoch(values.to_numpy())
    return _from_text(values.to_pylist(), column, first_row)


def _epoch(numbers: np.ndarray) -> np.ndarray:
    sizes = np.abs(numbers)
    units = np.select([sizes < bound for bound in _BOUNDS], _UNITS, 0)
    return np.where(units, numbers * units, numbers // 1000).astype(np.int64)


def _from_text(values: list[Any], column: str, first_row: int) -> np.ndarray:
    import pandas as pd

    texts = pd.Series(values, dtype=object)
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64)
    numeric = np.isfinite(numbers)
    result = np.empty(len(texts), np.int64)
    result[numeric] = _epoch(numbers[numeric])
    times = pd.to_datetime(texts[~numeric], format="mixed", errors="coerce", utc=True)
    if times.isna().any():
        wrong = int(times.index[times.isna()][0])
        raise DataError(
            f"column {column!r}, row {first_row + wrong + 1}: not a date or time",
            path="preprocessing.split.column",
            found=values[wrong],
            expected="such as 2024-01-31, 2024-01-31T13:45:00Z, or seconds since 1970",
        )
    result[~numeric] = times.dt.as_unit("us").astype("int64").to_numpy()
    return result
