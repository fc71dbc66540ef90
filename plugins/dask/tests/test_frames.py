"""A Dask DataFrame as the dataset is what its rows are in pandas, however it is partitioned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from core import preprocess
from core.data import open_source
from core.data.columns import table_of_columns
from core.errors import DataError

dd = pytest.importorskip("dask.dataframe")

ROWS = 120
FRAME = pd.DataFrame(
    {
        "x": np.where(np.arange(ROWS) % 7 == 3, np.nan, np.arange(ROWS) / 3),
        "kinds": pd.Series([i if i < 60 else f"word {i}" for i in range(ROWS)], dtype=object),
        "late": pd.Series([None] * 100 + [0.5] * 20, dtype=object),
        "c": pd.Categorical(["ä", "b", "c", "b"] * 30),
        "when": pd.date_range("2024-01-01", periods=ROWS),
        "y": [i % 3 == 0 for i in range(ROWS)],
    }
)
CONFIG = {
    "input_features": [{"name": "x", "type": "number"}, *({"name": n, "type": "category"} for n in ("kinds", "c"))],
    "output_features": [{"name": "y", "type": "binary"}],
}


@pytest.fixture
def table() -> pa.Table:
    return table_of_columns(dict(FRAME.items()), "the frame")


def partitioned(count: int) -> object:
    import dask

    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(FRAME, npartitions=count, sort=False)


@pytest.mark.parametrize("count", [1, 3, 17])
def test_values_types_and_fingerprint_are_those_of_pandas(table: pa.Table, count: int) -> None:
    source = open_source(partitioned(count))

    found = pa.concat_tables([read() for read in source.blocks(None)])

    assert found.equals(table)
    assert source.fingerprint() == open_source(FRAME).fingerprint()
    assert len(source.blocks(None)) == count
    assert len(source.blocks(2)) == min(count, 2)


@pytest.mark.parametrize("processor", ["pandas", "dask"])
def test_it_is_preprocessed_like_a_pandas_frame(tmp_path: Path, processor: str) -> None:
    def run(dataset: object, processor: str) -> object:
        backend = {"type": "local", "processor": processor, "cache_dir": str(tmp_path)}
        return preprocess(CONFIG, dataset, backend=backend)

    first = run(partitioned(5), processor)
    second = run(FRAME, "pandas")

    assert second.hit
    assert second.key == first.key


def test_columns_of_one_name_are_refused() -> None:
    frame = dd.from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]), npartitions=1)

    with pytest.raises(DataError, match="same name: 'a'"):
        open_source(frame)
