"""What the commands print, and where; what they write; and every way an option can be spelled."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shutil
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from pandas.testing import assert_frame_equal

from core.cli import main
from core.training.profile import PARTS

CONFIG: dict[str, Any] = {
    "input_features": [{"name": "x", "type": "number"}, {"name": "c", "type": "category"}],
    "output_features": [{"name": "y", "type": "category"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
    "trainer": {"epochs": 1},
}
TRAIN = ["train", "-c", "config.yaml", "--dataset", "data.csv"]
PREDICT = ["predict", "-m", "run", "--dataset", "data.csv"]
EVALUATE = ["evaluate", "-m", "run", "--dataset", "data.csv"]

Said = tuple[str, str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `config.yaml`, `data.csv`, the `run` that came of them, and a filled cache."""
    place = tmp_path_factory.mktemp("made")
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"id": range(100, 160), "x": random.normal(size=60), "c": random.choice(["r", "g"], 60)})
    frame["y"] = np.where(frame.x > 0, "yes", "no")
    frame.to_csv(place / "data.csv", index=False)
    (place / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    with contextlib.chdir(place):
        assert main([*TRAIN, "--quiet", "-od", "."]) == 0
    (place / "experiment_run").rename(place / "run")
    return place


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def say(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """What a command that succeeds writes to stdout and stderr."""

    def run(*words: str) -> Said:
        capsys.readouterr()
        status = main(list(words))
        said = capsys.readouterr()
        assert status == 0, said.err
        return said.out, said.err

    return run


def strict_json(text: str) -> Any:
    """One JSON value, by the standard: NaN is none."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


COMMANDS = {
    "train": (TRAIN, {"metrics", "run", "model"}),
    "experiment": (["experiment", *TRAIN[1:]], {"metrics", "run", "model"}),
    "preprocess": (["preprocess", *TRAIN[1:]], {"key", "url", "hit", "rows"}),
    "predict": (PREDICT, {"rows", "predictions"}),
    "evaluate": (EVALUATE, {"metrics", "rows", "statistics", "predictions"}),
}


@pytest.mark.parametrize(("words", "keys"), COMMANDS.values(), ids=COMMANDS)
def test_json_is_one_object_on_stdout_and_nothing_else(say, words, keys):
    out, err = say(*words, "--json", "--quiet")

    assert set(strict_json(out)) == keys
    assert out.count("\n") == 1
    assert err == ""


@pytest.mark.parametrize(("words", "keys"), COMMANDS.values(), ids=COMMANDS)
def test_progress_goes_to_stderr_in_plain_lines(say, words, keys):
    out, err = say(*words)

    assert err
    assert "\r" not in out + err
    assert "\x1b" not in out + err


def test_an_undefined_metric_is_null_in_json(say, here):
    config = CONFIG | {"output_features": [{"name": "y", "type": "binary"}]}
    (here / "config.yaml").write_text(yaml.safe_dump(config))
    frame = pd.read_csv("data.csv").assign(y=[0, 1] + [0] * 58)  # so a split has one class
    frame.to_csv("data.csv", index=False)

    out, _ = say(*TRAIN, "--json", "--set", "preprocessing.split.probabilities=[0.8, 0.1, 0.1]")

    assert strict_json(out)["metrics"]["validation"]["y"]["roc_auc"] is None


def test_train_ends_with_the_metrics_and_the_places(say):
    out, err = say(*TRAIN)

    assert "best weights, of evaluation 1:" in out
    for word in ("training", "validation", "test", "accuracy", "loss"):
        assert word in out
    run, model = (line.split()[-1] for line in out.splitlines()[-2:])
    assert Path(run).name == "experiment_run"
    assert Path(model) == Path(run, "model")
    assert {path.name for path in Path(run).iterdir()} == {
        "checkpoints", "description.json", "learning_curves.png", "model", "training_statistics.json"
    }  # fmt: skip
    assert "epoch 1/1, step 1" in err


def test_a_profile_says_where_the_time_went(say):
    _, err = say(*TRAIN, "--profile", "--quiet")

    first, *parts = err.splitlines()
    assert re.fullmatch(r"profile of worker 0, \d+\.\d s", first)
    assert [line.split()[0] for line in parts] == list(PARTS)
    assert sum(float(line.split()[3].rstrip("%")) for line in parts) == pytest.approx(100, abs=0.5)


def test_a_second_run_finds_its_data_and_takes_another_folder(say):
    _, first = say(*TRAIN, "--set", "preprocessing.sample_size=50")
    out, second = say(*TRAIN, "--set", "preprocessing.sample_size=50")

    [made] = [line for line in first.splitlines() if "rows in" in line]
    [found] = [line for line in second.splitlines() if "rows in" in line]
    assert made.startswith("data processed: 35 training, 5 validation, 10 test rows in ")
    assert found == made.replace("data processed", "cached data")
    assert "experiment_run_1" in out


def test_preprocess_tells_the_key_and_the_place(say):
    made = strict_json(say("preprocess", *TRAIN[1:], "--json", "-rs", "7")[0])
    out, _ = say("preprocess", *TRAIN[1:], "-rs", "7")

    assert made["hit"] is False
    assert made["rows"] == {"training": 42, "validation": 6, "test": 12}
    assert out == f"key    {made['key']}\nplace  {made['url']}\n"
    assert (Path(made["url"]) / "manifest.json").is_file()


def test_evaluate_tells_and_writes_the_metrics(say):
    out, _ = say(*EVALUATE, "--split", "test")

    statistics = json.loads(Path("results/test_statistics.json").read_text())
    trained = json.loads(Path("run/training_statistics.json").read_text())
    assert {name: {metric: [value] for metric, value in of.items()} for name, of in statistics.items()} == {
        name: {metric: pytest.approx(values) for metric, values in of.items()} for name, of in trained["test"].items()
    }
    assert f"{statistics['y']['accuracy']:.4f}" in out
    assert len(pd.read_parquet("results/predictions.parquet")) == 12


def test_experiment_writes_beside_the_run(say):
    out, _ = say("experiment", *TRAIN[1:], "--json")

    run = Path(strict_json(out)["run"])
    assert len(pd.read_parquet(run / "predictions.parquet")) == 12
    assert json.loads((run / "test_statistics.json").read_text()) == {
        name: {metric: pytest.approx(value) for metric, value in of.items()}
        for name, of in strict_json(out)["metrics"]["test"].items()
    }


def test_experiment_on_data_given_apart(say):
    words = ["--training-set", "data.csv", "--validation-set", "data.csv", "--test-set", "data.csv"]
    out, _ = say("experiment", "-c", "config.yaml", *words, "--json")

    assert len(pd.read_parquet(Path(strict_json(out)["run"]) / "predictions.parquet")) == 60


def test_schema(say, here):
    out, err = say("schema")
    say("schema", "--output", "schema.json")

    assert strict_json(out)["$schema"].startswith("http://json-schema.org/draft-07")
    assert err == ""
    assert Path("schema.json").read_text() == out


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_predictions_are_the_same_in_every_format(say, suffix):
    say(*PREDICT, "--output", "a.parquet")
    say(*PREDICT, "--output", f"deep/b{suffix}")

    read = {".parquet": pd.read_parquet, ".csv": pd.read_csv, ".jsonl": lambda path: pd.read_json(path, lines=True)}
    expected = pd.read_parquet("a.parquet")
    assert list(expected) == ["y_predictions", "y_probability", "y_probabilities_yes", "y_probabilities_no"]
    found = read[suffix](f"deep/b{suffix}")
    assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)
    assert os.listdir("deep") == [f"b{suffix}"]


def test_index_column_is_carried_over_in_order(say):
    say(*PREDICT, "--index-column", "id", "--split", "test", "-o", "p.csv")

    found = pd.read_csv("p.csv")
    assert found.columns[0] == "id"
    assert len(found) == 12
    assert found["id"].is_monotonic_increasing
    say(*PREDICT, "--index-column", "id", "-o", "all.csv")
    everything = pd.read_csv("all.csv")
    assert everything["id"].tolist() == list(range(100, 160))
    assert_frame_equal(everything[everything["id"].isin(found["id"])].reset_index(drop=True), found, rtol=1e-6)


def test_splits_are_those_of_training(say):
    rows = {
        split: pd.read_csv(f"{split}.csv")["id"].tolist()
        for split in ("full", "training", "validation", "test")
        if say(*PREDICT, "--split", split, "--index-column", "id", "-o", f"{split}.csv")
    }

    assert [len(rows[split]) for split in ("training", "validation", "test")] == [42, 6, 12]
    assert sorted(rows["training"] + rows["validation"] + rows["test"]) == rows["full"]


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        ("--skip-save-progress", {"description.json", "learning_curves.png", "model", "training_statistics.json"}),
        ("--skip-save-training-statistics", {"checkpoints", "description.json", "model"}),
    ],
)
def test_what_is_not_wanted_is_not_written(say, option, kept):
    out, _ = say(*TRAIN, option, "--json")

    assert {path.name for path in Path(strict_json(out)["run"]).iterdir()} == kept


def test_processed_data_that_is_not_wanted_is_not_kept(say):
    shutil.rmtree("data.csv/.core_cache", ignore_errors=True)
    shutil.rmtree(".core_cache")

    say(*TRAIN, "--skip-save-processed-input")

    assert not Path(".core_cache").exists()


def test_evaluation_without_predictions(say):
    say(*EVALUATE, "--skip-save-predictions")

    assert os.listdir("results") == ["test_statistics.json"]


SPELLINGS = {
    "long": ["--config", "config.yaml", "--output-directory", "out", "--random-seed", "7", "--backend", "local"],
    "underscores": ["--config=config.yaml", "--output_directory=out", "--random_seed=7", "--backend=local"],
    "short": ["-c", "config.yaml", "-od", "out", "-rs", "7", "-b", "local"],
    "text": ["-cs", yaml.safe_dump(CONFIG), "-od", "out", "-rs", "7", "-b", "{type: local}"],
    "long text": ["--config_str", yaml.safe_dump(CONFIG), "-od", "out", "-rs", "7", "--backend", "type: local"],
}


@pytest.mark.parametrize("words", SPELLINGS.values(), ids=SPELLINGS)
def test_spellings_mean_the_same(say, words):
    out, _ = say("train", *words, "--dataset", "data.csv", "--json", "--experiment_name", "a_b", "--model-name", "c_d")

    assert Path(strict_json(out)["run"]) == Path("out/a_b_c_d").absolute()
    described = json.loads(Path("out/a_b_c_d/description.json").read_text())
    assert described["random_seed"] == 7
    assert described["config"]["backend"]["type"] == "local"


def test_set_changes_keys_of_the_file(say):
    out, err = say(*TRAIN, "--set", "trainer.epochs=2", "--set=input_features.c.type=text", "--json")

    assert "epoch 2/2" in err
    config = json.loads((Path(strict_json(out)["run"]) / "description.json").read_text())["config"]
    assert [feature["type"] for feature in config["input_features"]] == ["number", "text"]


@pytest.mark.parametrize("option", ["-mrp", "--model-resume-path", "--model_resume_path"])
def test_resume_goes_on_in_the_same_folder(say, option):
    out, err = say("train", option, "run", "--set", "trainer.epochs=2", "--json")

    assert Path(strict_json(out)["run"]) == Path("run").absolute()
    assert "continuing after step 1 of 2" in err
    assert "epoch 1/2" not in err
    statistics = json.loads(Path("run/training_statistics.json").read_text())
    assert len(statistics["training"]["y"]["loss"]) == 2


@pytest.mark.parametrize("option", ["-mlp", "--model_load_path"])
@pytest.mark.parametrize("path", ["run", "run/model"])
def test_load_starts_from_weights(say, option, path):
    out, _ = say(*TRAIN, option, path, "--set", "trainer.learning_rate=1.0e-12", "--json")

    before = json.loads(Path("run/training_statistics.json").read_text())["validation"]["y"]["loss"][0]
    assert strict_json(out)["metrics"]["validation"]["y"]["loss"] == pytest.approx(before, rel=1e-5)


def test_tensorboard_events(say):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    out, _ = say(*TRAIN, "--tensorboard", "--set", "trainer.epochs=3", "--json")

    written = events.EventAccumulator(str(Path(strict_json(out)["run"]) / "tensorboard"))
    written.Reload()
    assert {"training/y/loss", "validation/y/accuracy", "test/combined/loss"} <= set(written.Tags()["scalars"])
    assert [event.step for event in written.Scalars("validation/y/loss")] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore")  # of MLflow about itself
def test_mlflow_run(say, here, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((here / "mlruns").as_uri())

    out, _ = say(*TRAIN, "--mlflow", "--set", "trainer.epochs=2", "--json")

    client = mlflow.tracking.MlflowClient()
    [run] = client.search_runs([client.get_experiment_by_name("core").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["trainer.epochs"] == "2"
    history = client.get_metric_history(run.info.run_id, "validation.y.loss")
    assert [(point.step, point.value) for point in history][-1] == (
        2,
        pytest.approx(
            json.loads((Path(strict_json(out)["run"]) / "training_statistics.json").read_text())["validation"]["y"][
                "loss"
            ][-1]
        ),
    )
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"config.json", "model"}


def shown_on_a_terminal(*words: str) -> str:
    """What a command that succeeds writes to a terminal that is its stderr."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 100))
    written = io.BytesIO()

    def listen() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while part := os.read(master, 1 << 16):
                written.write(part)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        with os.fdopen(slave, "w") as stream, contextlib.redirect_stderr(stream):
            assert main(list(words)) == 0
    finally:
        listener.join()
        os.close(master)
    return written.getvalue().decode()


@pytest.mark.parametrize(
    ("words", "bars"),
    [
        (["preprocess", *TRAIN[1:], "-rs", "1"], ["read:", "encode:"]),
        ([*TRAIN, "-rs", "1"], ["encode:", "training:", "evaluating validation:"]),
        (["experiment", *TRAIN[1:]], ["training:", "predicting:"]),
        (PREDICT, ["predicting:"]),
        (EVALUATE, ["predicting:"]),
    ],
    ids=lambda value: value[0],
)
def test_a_terminal_gets_bars_that_go_again(here, words, bars):
    shown = shown_on_a_terminal(*words)

    for bar in bars:
        assert f"\r{bar}" in shown
    last = [line.rpartition("\r")[2].strip() for line in shown.replace("\r\n", "\n").split("\n")]
    assert not [line for line in last if line.startswith(tuple(bars))]


def test_quiet_means_it_on_a_terminal_too(here):
    assert shown_on_a_terminal(*TRAIN, "--quiet") == ""
