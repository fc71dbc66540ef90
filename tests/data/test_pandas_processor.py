"""The default engine keeps the contract of `core.processor`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pytest

from core.data import open_source
from core.errors import DataError
from core.processors import pandas as engine
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions

TABLE = pa.table(
    {
        "a": pa.chunked_array([[1, 2, None], [4, 5]]),
        "t": ["x", None, "z", "", "é"],
        "n": pa.nulls(5),
        "when": pa.array([0, 1, None, 3, 4], pa.timestamp("ns")),
        "many": [[1], None, [], [2, 3], [4]],
    }
)


def processor(parallelism: int | None = None) -> PandasProcessor:
    return PandasProcessor(ProcessorOptions(parallelism=parallelism))


@pytest.mark.parametrize("parallelism", [None, 1, 2, 5, 9])
def test_partitions_are_the_rows_in_order(parallelism: int | None) -> None:
    engine_ = processor(parallelism)
    frame = engine_.open(open_source(TABLE))

    found = engine_.map(frame, lambda table, first_row: (first_row, table))

    assert isinstance(frame, pd.DataFrame)
    assert len(found) == min(parallelism or 1, 5)
    assert [first for first, _ in found] == [sum(t.num_rows for _, t in found[:i]) for i in range(len(found))]
    assert pa.concat_tables([table for _, table in found]).equals(TABLE)


def test_large_data_is_cut_into_partitions_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PARTITION_ROWS", 2)

    assert processor().map(processor().open(open_source(TABLE)), lambda table, _: table.num_rows) == [1, 2, 2]


def test_no_rows_are_one_empty_partition() -> None:
    frame = processor(3).open(open_source(TABLE.slice(0, 0)))

    assert processor(3).map(frame, lambda table, first: (table.num_rows, first)) == [(0, 0)]


def test_the_first_error_in_row_order_wins_and_the_rest_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_cpus", lambda: 2)
    started = []

    def fails(table: pa.Table, first_row: int) -> None:
        started.append(first_row)
        if first_row == 1:
            raise ValueError(first_row)
        time.sleep(0.05 if first_row == 0 else 0.2)
        if first_row > 1:
            raise KeyError(first_row)

    engine_ = processor(50)
    frame = engine_.open(open_source({"a": list(range(50))}))

    with pytest.raises(ValueError, match="1"):
        engine_.map(frame, fails)
    assert len(started) < 10


def _out_of_memory(*_: object) -> pa.Table:
    raise MemoryError


@pytest.mark.parametrize("where", ["open", "map"])
def test_too_little_memory_names_another_processor(where: str) -> None:
    class Huge:
        def blocks(self, count: int | None) -> list[Callable[[], pa.Table]]:
            return [functools.partial(_out_of_memory)]

    frame = processor().open(open_source(TABLE))
    work = {"open": lambda: processor().open(Huge()), "map": lambda: processor().map(frame, _out_of_memory)}

    with pytest.raises(DataError, match="does not fit into memory") as raised:
        work[where]()

    assert "dask" in raised.value.hint
