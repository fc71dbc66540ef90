"""Predictions: one row a row, in their order, whatever is missing; and metrics that are those of training."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from core.errors import DataError

ROWS = 90
TARGETS = ["yes", "which", "much"]


def test_columns_are_named_after_features(model, frame):
    assert list(model.predict(frame, index_column="id")) == [
        "id",
        "yes_predictions",
        "yes_probability",
        "yes_probabilities_False",
        "yes_probabilities_True",
        "which_predictions",
        "which_probability",
        *[f"which_probabilities_{name}" for name in ("big", "small", "none")],
        "much_predictions",
    ]  # fmt: skip


def test_rows_do_not_depend_on_their_neighbours(model, frame):
    whole = model.predict(frame, index_column="id")

    shuffled = frame.sample(frac=1, random_state=1)
    found = model.predict(shuffled, index_column="id")

    assert whole["id"].tolist() == frame["id"].tolist()
    assert found["id"].tolist() == shuffled["id"].tolist()
    found = found.set_index("id").loc[frame["id"]].reset_index()
    assert_frame_equal(found, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 7, ROWS, 10_000])
def test_batch_size_changes_nothing(model, frame, batch_size):
    assert_frame_equal(
        model.predict(frame, batch_size=batch_size), model.predict(frame), rtol=0, atol=1e-4, check_exact=False
    )
    outputs = [name for name in model.predict(frame[:1]) if "probabilit" in name]
    assert (
        np.abs(model.predict(frame, batch_size=batch_size)[outputs] - model.predict(frame)[outputs]).max().max() < 1e-6
    )


def test_one_row(model, frame):
    found = model.predict(frame[5:6])

    assert_frame_equal(found, model.predict(frame)[5:6], rtol=1e-5)


def test_predictions_carry_the_index_of_a_frame(model, frame):
    named = frame.set_axis([f"row {number}" for number in range(len(frame))])

    assert list(model.predict(named).index) == list(named.index)
    _, found = model.evaluate(named, split="test")
    assert 0 < len(found) < len(named)
    assert_frame_equal(found, model.predict(named).loc[found.index], rtol=1e-4)


def test_missing_and_unseen_values_have_predictions(model, frame):
    data = frame.drop(columns=TARGETS)
    data.loc[0, ["x", "c", "t"]] = None
    data.loc[1, "c"] = "never seen"
    data.loc[2, "t"] = "never seen either"
    data.loc[3, "t"] = "…"

    found = model.predict(data)

    assert len(found) == ROWS
    assert found.notna().all(axis=None)
    assert_frame_equal(found[4:], model.predict(frame)[4:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "missing", [[0], [3, 4, ROWS - 1], range(1, ROWS), range(ROWS)], ids=["first", "some", "most", "all"]
)
def test_a_row_without_what_it_must_have_is_null_and_stays(model, frame, missing):
    data = frame.copy()
    data.loc[list(missing), "must"] = None

    found = model.predict(data, index_column="id")

    assert found["id"].tolist() == frame["id"].tolist()
    without = found["id"].isin(data.loc[list(missing), "id"])
    predictions = found.drop(columns="id")
    assert predictions[without].isna().all(axis=None)
    assert predictions[~without].notna().all(axis=None)
    assert_frame_equal(predictions[~without], model.predict(frame)[~without], rtol=1e-5, atol=1e-6, check_dtype=False)


def test_targets_are_not_needed_and_not_looked_at(model, frame):
    expected = model.predict(frame)

    assert_frame_equal(model.predict(frame.drop(columns=TARGETS)), expected)
    assert_frame_equal(model.predict(frame.assign(yes="neither", which=None, much="no number")), expected)


def test_evaluation_gives_the_metrics_of_the_best_round(model, run, frame):
    for split in ("validation", "test"):
        metrics, predictions = model.evaluate(frame, split=split)

        assert metrics == {
            feature: {name: pytest.approx(value, rel=1e-5) for name, value in of.items()}
            for feature, of in run.metrics(split).items()
        }
        assert len(predictions) == len(model.predict(frame, split=split))


def test_splits_make_up_the_dataset(model, frame):
    parts = [model.predict(frame, split=split, index_column="id") for split in ("training", "validation", "test")]

    assert [len(part) for part in parts] == [63, 9, 18]
    joined = pd.concat(parts).set_index("id").loc[frame["id"]].reset_index()
    assert_frame_equal(joined, model.predict(frame, index_column="id"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_without_a_target_are_predicted_and_not_measured(model, frame, target):
    data = frame.copy()
    data[target] = data[target].astype(object)
    data.loc[::2, target] = None

    metrics, predictions = model.evaluate(data)

    assert_frame_equal(predictions, model.predict(frame), rtol=1e-5, atol=1e-6)
    expected, _ = model.evaluate(frame[1::2])
    assert metrics == {
        feature: {name: pytest.approx(value, rel=1e-5) for name, value in of.items()}
        for feature, of in expected.items()
    }


def test_rows_without_an_input_they_must_have_are_not_measured(model, frame):
    data = frame.copy()
    data.loc[::2, "must"] = None
    data.loc[1, "which"] = None

    metrics, predictions = model.evaluate(data)

    assert predictions["which_predictions"].isna().tolist() == [row % 2 == 0 for row in range(ROWS)]
    assert metrics["much"] == pytest.approx(model.evaluate(frame[3::2])[0]["much"], rel=1e-5)


def test_nothing_to_measure(model, frame):
    with pytest.raises(DataError, match="no row has a value for every output feature"):
        model.evaluate(frame.assign(which=None))


KINDS = ["frame", "table", "columns", "records", "csv", "parquet", "jsonl", "files", "glob", "folder"]


def datasets(frame: pd.DataFrame, place: Path) -> dict[str, Any]:
    """The frame in every form a dataset can have."""
    frame.to_csv(place / "a.csv", index=False)
    frame.to_parquet(place / "a.parquet")
    frame.to_json(place / "a.jsonl", orient="records", lines=True)
    parts = place / "parts"
    parts.mkdir()
    for number, (start, stop) in enumerate(itertools.pairwise([0, 31, 32, ROWS])):
        frame[start:stop].to_csv(parts / f"{number}.csv", index=False)
    return {
        "frame": frame,
        "table": pa.Table.from_pandas(frame),
        "columns": frame.to_dict("list"),
        "records": frame.to_dict("records"),
        "csv": place / "a.csv",
        "parquet": str(place / "a.parquet"),
        "jsonl": place / "a.jsonl",
        "files": sorted(parts.iterdir()),
        "glob": str(parts / "*.csv"),
        "folder": parts,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_a_dataset_is_predicted_alike(model, frame, tmp_path, kind):
    found = model.predict(datasets(frame, tmp_path)[kind], index_column="id")

    assert_frame_equal(found, model.predict(frame, index_column="id"), rtol=1e-5, atol=1e-6)
