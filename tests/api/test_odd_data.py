"""Names, values and files that are odd and legal; and a place that fails while it is written to."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import core
from core.cli import main
from core.cli.console import Console
from core.errors import DataError

ROWS = 40
X = np.random.default_rng(0).normal(size=ROWS).round(3)
Y = [0, 1] * (ROWS // 2)


def number(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "type": "number", **settings}


def config(*inputs: dict[str, Any], output: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "input_features": list(inputs),
        "output_features": [output or {"name": "y", "type": "binary"}],
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
        "trainer": {"epochs": 1},
        "backend": {"type": "local"},
        **sections,
    }


def predictions(described: dict[str, Any], dataset: Any, place: Path) -> pd.DataFrame:
    """Of a model trained on the same rows and read back from its folder."""
    run = core.Model(described).train(dataset, output_directory=place / "runs")
    return core.Model.load(run.model_path).predict(dataset)


NAMES = [
    "größe 日本",
    "a b",
    "a.b",
    "a/b",
    "a\\b",
    "a::b",
    "a'\"b",
    "..",
    "a,b",
    "{a}",
    "$\\no$",
    "%s",
    "null",
    "1.5",
    "0",
]
NAMES += ["<UNK>", "loss", "accuracy", "training", "forward", "weight", "feature_a"]


@pytest.mark.parametrize("role", ["input", "output"])
def test_any_name_that_can_be_printed_is_a_feature_s(tmp_path, role):
    names = NAMES if role == "input" else NAMES[::2]  # each output costs some plots
    data = pd.DataFrame({name: np.roll(X, shift) for shift, name in enumerate(names)} | {"other": X})
    data.to_csv(tmp_path / "data.csv", index=False)
    odd, other = list(map(number, names)), [number("other")]
    described = config(*odd, output=other[0]) if role == "input" else config(*other) | {"output_features": odd}

    found = predictions(described, tmp_path / "data.csv", tmp_path)

    assert len(found) == ROWS
    assert list(found) == [f"{name}_predictions" for name in (["other"] if role == "input" else names)]


def test_a_column_may_have_a_name_that_a_feature_may_not(tmp_path):
    data = pd.DataFrame({"__row__": X, "combined": X, "y": Y})

    found = predictions(config(number("a", column="__row__"), number("b", column="combined")), data, tmp_path)

    assert len(found) == ROWS


VALUES = {
    "beyond float32": np.where(X > 0, 1e300, -1e300),
    "beyond int64": [str(10**25 + row) for row in range(ROWS)],
    "large and close together": [10**9 + row for row in range(ROWS)],
    "constant": [3] * ROWS,
    "truth values": [True, False] * (ROWS // 2),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("role", ["input", "target"])
def test_odd_numbers(tmp_path, values, role):
    data = pd.DataFrame({"v": values, "w": X, "y": Y})
    described = config(number("v")) if role == "input" else config(number("w"), output=number("v"))

    found = predictions(described, data, tmp_path)

    assert found.notna().all(axis=None)
    assert np.isfinite(found.select_dtypes("number").to_numpy(float)).all()


@pytest.mark.parametrize("kind", ["category", "text"])
@pytest.mark.parametrize(
    "values",
    [
        ["..."] * ROWS,
        ["<UNK>", "<PAD>"] * (ROWS // 2),
        [f"k{row}" for row in range(ROWS)],
        ["c" * 10_000, "d"] * (ROWS // 2),
        ["a\r\nb", 'c "d", e'] * (ROWS // 2),
        ["\u200b", "e\u0301"] * (ROWS // 2),
    ],
    ids=["marks", "reserved", "all different", "long", "line breaks", "invisible"],
)
def test_odd_words(tmp_path, kind, values):
    pd.DataFrame({"v": values, "y": Y}).to_csv(tmp_path / "data.csv", index=False)

    found = predictions(config({"name": "v", "type": kind}), tmp_path / "data.csv", tmp_path)

    assert found.notna().all(axis=None)


def test_ten_thousand_categories(tmp_path):
    rows = 10_000
    data = pd.DataFrame({"v": [f"k{row}" for row in range(rows)], "y": np.arange(rows) % 2})
    described = config({"name": "v", "type": "category"}, trainer={"epochs": 1, "batch_size": 2048})

    assert len(predictions(described, data, tmp_path)) == rows


def test_classes_of_any_name(tmp_path):
    data = pd.DataFrame({"x": X[:39], "y": ["a/b", "ü, \"'", "predictions"] * 13})

    found = predictions(config(number("x"), output={"name": "y", "type": "category"}), data, tmp_path)

    assert set(found["y_predictions"]) <= set(data["y"])
    assert "y_probabilities_a/b" in found


FILES = {
    "Windows line ends": "x,y\r\n" + "".join(f"{x},{y}\r\n" for x, y in zip(X, Y, strict=True)),
    "no last line end": "x,y\n" + "\n".join(f"{x},{y}" for x, y in zip(X, Y, strict=True)),
    "empty lines at the end": "x,y\n" + "".join(f"{x},{y}\n" for x, y in zip(X, Y, strict=True)) + "\n\n",
    "a delimiter at every line's end": "x,y,\n" + "".join(f"{x},{y},\n" for x, y in zip(X, Y, strict=True)),
    "two delimiters at every line's end": "x,y,,\n" + "".join(f"{x},{y},,\n" for x, y in zip(X, Y, strict=True)),
    "blanks around numbers": "x,y\n" + "".join(f"  {x} , {y} \n" for x, y in zip(X, Y, strict=True)),
    "semicolons": "x;y\n" + "".join(f'"{x}";{y}\n' for x, y in zip(X, Y, strict=True)),
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_odd_files_are_read_as_what_they_mean(tmp_path, text):
    (tmp_path / "data.csv").write_text(text, newline="")

    found = core.preprocess(config(number("x", preprocessing={"normalization": None})), tmp_path / "data.csv")

    rows = {row: value for split in found.splits.values() for row, value in zip(
        split.row_numbers().to_pylist(), split.read(0, split.rows)["x"].to_pylist(), strict=True)}  # fmt: skip
    assert [rows[row] for row in range(ROWS)] == pytest.approx(list(X))


@pytest.mark.parametrize(
    "sections",
    [
        {"trainer": {"epochs": 1, "batch_size": 1}},
        {"trainer": {"epochs": 1, "batch_size": 1000}},
        {"preprocessing": {"split": {"type": "random", "probabilities": [0.8, 0, 0.2]}}},
        {"preprocessing": {"split": {"type": "random", "probabilities": [1, 0, 0]}}},
        {"preprocessing": {"sample_size": 2}},
        {
            "preprocessing": {"split": {"type": "random", "probabilities": [1, 0, 0]}},
            "trainer": {"epochs": 2, "learning_rate_scheduler": {"reduce_on_plateau": 1, "reduce_eval_split": "test"}},
        },
    ],
    ids=["1-row batches", "one batch", "no validation", "training alone", "2 rows", "plateau of nothing"],
)
def test_small_and_empty_splits(tmp_path, sections):
    data = pd.DataFrame({"x": X, "y": X * 2})

    found = predictions(config(number("x"), output=number("y"), **sections), data, tmp_path)

    assert found.notna().all(axis=None)


def test_an_index_column_named_like_a_prediction_is_refused(tmp_path):
    data = pd.DataFrame({"x": X, "y": Y, "y_predictions": Y})
    model = core.Model(config(number("x")))
    model.train(data, output_directory=tmp_path)

    with pytest.raises(DataError, match="'y_predictions'") as raised:
        model.predict(data, index_column="y_predictions")

    assert raised.value.path == "--index-column"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    described = config(number("x")) | {"combiner": {"type": "concat", "num_fc_layers": 2, "output_size": 64}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(described))
    pd.DataFrame({"x": X, "y": Y}).to_csv(tmp_path / "data.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Writing more into a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


TRAIN = ["-c", "config.yaml", "--dataset", "data.csv"]


@pytest.mark.parametrize("size", [100, 10_000, 30_000], ids=["description", "weights", "checkpoint"])
def test_a_full_disk_is_said_and_what_was_begun_is_removed(here, capsys, size):
    assert main(["preprocess", *TRAIN]) == 0

    with files_up_to(size):
        status = main(["train", *TRAIN, "--set", "trainer.epochs=2"])

    err = capsys.readouterr().err
    assert status == 2, err
    assert "Traceback" not in err
    assert "cannot write it: " in err
    assert "experiment_run" in err
    begun = [path for path in (here / "results").rglob("*") if path.name.startswith(".")]
    assert begun == []


def test_a_full_disk_in_preprocessing_and_prediction(here, capsys):
    with files_up_to(100):
        assert main(["preprocess", *TRAIN]) == 2
    assert ".core_cache" in capsys.readouterr().err
    assert main(["train", *TRAIN, "--quiet"]) == 0
    for name in ("p.parquet", "p.csv", "p.jsonl"):
        capsys.readouterr()
        with files_up_to(100):
            status = main(["predict", "-m", "results/experiment_run", "--dataset", "data.csv", "-o", name])
        err = capsys.readouterr().err
        assert status == 2, err
        assert name in err
        assert [path.name for path in here.iterdir() if "p." in path.name] == []


@pytest.mark.parametrize("command", ["preprocess", "train", "experiment"])
@pytest.mark.parametrize("stage", ["read", "summarise", "encode"])
def test_ctrl_c_in_preprocessing_leaves_nothing(here, capsys, monkeypatch, command, stage):
    def press(self: Any, *, stage: str, **details: Any) -> None:
        if stage == wanted:
            signal.raise_signal(signal.SIGINT)

    wanted = stage
    monkeypatch.setattr(Console, "on_preprocess_progress", press)

    assert main([command, *TRAIN]) == 130

    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.startswith("core: ")
    assert [path for path in (here / ".core_cache").rglob("*") if path.is_file()] == []
    assert not list(here.glob("results/*"))


@pytest.mark.slow
def test_runs_that_start_together_share_the_cache_and_nothing_else(here):
    shutil.rmtree(here / ".core_cache", ignore_errors=True)
    command = [sys.executable, "-m", "core", "train", *TRAIN, "--quiet", "--json"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]

    for run in runs:
        _, errors = run.communicate(timeout=120)
        assert (run.returncode, errors) == (0, "")

    names = ["experiment_run", "experiment_run_1", "experiment_run_2"]
    assert sorted(path.name for path in (here / "results").iterdir()) == names
    weights = [(here / "results" / name / "model" / "model.safetensors").read_bytes() for name in names]
    assert len(set(weights)) == 1
    [entry] = (here / ".core_cache").iterdir()
    assert len([path for path in entry.iterdir() if path.is_dir()]) == 1
