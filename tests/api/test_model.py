"""The Python API: any form of data, any place of the model, and nothing secret left behind."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import shutil
from typing import Any

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file

import core
from core import errors
from core.errors import ConfigError, DataError, ModelError, UserError
from core.features.base import Unparsable

ROWS = 60
CONFIG: dict[str, Any] = {
    "input_features": [{"name": "x", "type": "number"}, {"name": "c", "type": "category"}],
    "output_features": [{"name": "y", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
    "trainer": {"epochs": 2, "batch_size": 16},
    "backend": {"type": "local"},
}


@pytest.fixture
def config() -> dict[str, Any]:
    return copy.deepcopy(CONFIG)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=ROWS)
    return pd.DataFrame({"x": x, "c": random.choice(["r", "g"], ROWS), "y": x > 0})


def weights(run: core.Run) -> dict[str, Any]:
    return load_file(run.model_path / "model.safetensors")


def assert_same(run: core.Run, other: core.Run) -> None:
    assert run.training_statistics == other.training_statistics
    for name, tensor in weights(other).items():
        assert weights(run)[name].equal(tensor), name


@pytest.fixture(scope="module")
def expected(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> core.Run:
    """What the frame comes to."""
    return core.Model(CONFIG).train(frame, output_directory=tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    "kind",
    ["table", "columns", "records", "csv", "Path", "gzip", "parquet", "jsonl", "feather", "files", "glob", "folder"],
)
def test_every_form_of_a_dataset_trains_alike(config, frame, expected, tmp_path, kind):
    # given
    place = tmp_path / "data"
    (place / "parts").mkdir(parents=True)
    frame.to_csv(place / "a.csv", index=False)
    frame.to_csv(place / "b.csv.gz", index=False)
    frame.to_parquet(place / "a.parquet")
    frame.to_feather(place / "a.feather")
    frame.to_json(place / "a.jsonl", orient="records", lines=True, double_precision=15)
    for number, (start, stop) in enumerate(itertools.pairwise([0, 31, 32, ROWS])):
        frame[start:stop].to_csv(place / "parts" / f"{number}.csv", index=False)
    datasets = {
        "table": pa.Table.from_pandas(frame),
        "columns": frame.to_dict("list"),
        "records": frame.to_dict("records"),
        "csv": str(place / "a.csv"),
        "Path": place / "a.csv",
        "gzip": place / "b.csv.gz",
        "parquet": place / "a.parquet",
        "jsonl": place / "a.jsonl",
        "feather": place / "a.feather",
        "files": sorted(map(str, (place / "parts").iterdir())),
        "glob": str(place / "parts" / "?.csv"),
        "folder": place / "parts",
    }
    # when
    run = core.Model(config).train(datasets[kind], output_directory=tmp_path / "runs")
    # then
    assert_same(run, expected)


@pytest.mark.parametrize("form", ["path", "Path", "text", "mapping", "Config"])
def test_every_form_of_a_config(frame, expected, tmp_path, form):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    forms = {
        "path": str(tmp_path / "config.yaml"),
        "Path": tmp_path / "config.yaml",
        "text": yaml.safe_dump(CONFIG),
        "mapping": CONFIG,
        "Config": core.Model(CONFIG).config,
    }

    model = core.Model(forms[form])

    assert model.config == core.Model(CONFIG).config
    assert model.config.trainer.epochs == 2
    changed = core.Model(forms[form], overrides=["trainer.epochs=9"], backend={"cache_dir": "elsewhere"})
    assert (changed.config.trainer.epochs, changed.config.backend.cache_dir) == (9, "elsewhere")


def test_a_config_given_is_left_as_it_is(config, frame, tmp_path):
    core.Model(config, overrides=["trainer.epochs=1"]).train(frame, output_directory=tmp_path)

    assert config == CONFIG


def test_what_a_run_tells(expected):
    assert expected.output_directory.name == "experiment_run"
    assert expected.model_path == expected.output_directory / "model"
    saved = json.loads((expected.output_directory / "training_statistics.json").read_bytes())
    assert saved == expected.training_statistics
    assert len(saved["validation"]["y"]["loss"]) == 2
    for split in ("training", "validation", "test"):
        best = expected.metrics(split)
        assert best["y"]["loss"] == expected.training_statistics[split]["y"]["loss"][expected.best_round]


def test_a_model_works_wherever_it_is_copied(expected, frame, tmp_path):
    before = core.Model.load(expected.model_path).predict(frame)
    shutil.copytree(expected.model_path, tmp_path / "a b" / "é")

    for path in (tmp_path / "a b" / "é", str(tmp_path / "a b" / "é"), expected.output_directory):
        assert_frame_equal(core.Model.load(path).predict(frame), before)


def test_a_trained_model_predicts_as_a_loaded_one(config, frame, tmp_path):
    model = core.Model(config)
    run = model.train(frame, output_directory=tmp_path)

    assert_frame_equal(model.predict(frame), core.Model.load(run.model_path).predict(frame))


def test_a_loaded_model_can_be_trained_on(expected, frame, tmp_path):
    model = core.Model.load(expected.model_path)

    run = model.train(frame, output_directory=tmp_path, model_load_path=expected.model_path)

    assert (
        run.training_statistics["training"]["y"]["loss"][-1] < expected.training_statistics["training"]["y"]["loss"][-1]
    )
    assert model.model_path == run.model_path


def test_a_model_without_weights(config, frame):
    with pytest.raises(ConfigError, match="no weights yet"):
        core.Model(config).predict(frame)


def test_a_run_in_memory_continues_to_the_same_weights(config, frame, tmp_path, expected):
    part = core.Model(config, overrides=["trainer.epochs=1"]).train(frame, output_directory=tmp_path)

    whole = core.Model(config).train(frame, model_resume_path=part.output_directory)

    assert whole.output_directory == part.output_directory
    assert_same(whole, expected)
    with pytest.raises(DataError, match="was in memory"):
        core.Model(config).train(model_resume_path=part.output_directory)


def test_a_run_of_a_file_continues_without_it_being_named(config, frame, tmp_path, expected):
    frame.to_csv(tmp_path / "a.csv", index=False)
    part = core.Model(config, overrides=["trainer.epochs=1"]).train(tmp_path / "a.csv", output_directory=tmp_path)

    assert_same(core.Model(config).train(model_resume_path=part.output_directory), expected)


def test_sets_given_apart(config, frame, tmp_path):
    run = core.Model(config).train(
        training_set=frame[:40], validation_set=frame[40:50], test_set=frame[50:], output_directory=tmp_path
    )

    metrics, predictions = core.Model.load(run.model_path).evaluate(frame[50:])
    assert metrics["y"] == pytest.approx(run.metrics("test")["y"], rel=1e-5)
    assert len(predictions) == 10


def test_training_rows_alone(config, frame, tmp_path):
    model = core.Model(config)
    run = model.train(training_set=frame, output_directory=tmp_path)

    assert set(run.training_statistics) == {"training"}
    assert run.metrics("validation") == {}
    assert run.best_round == 1
    assert len(model.predict(frame)) == ROWS


def test_experiment(config, frame, tmp_path, expected):
    run, metrics, predictions = core.Model(config).experiment(frame, output_directory=tmp_path)

    assert_same(run, expected)
    assert metrics["y"] == pytest.approx(run.metrics("test")["y"], rel=1e-5)
    assert len(predictions) == 12
    with pytest.raises(DataError, match="no test rows"):
        core.Model(config).experiment(training_set=frame, output_directory=tmp_path)


def test_preprocess_fills_the_cache_that_training_finds(config, frame, tmp_path):
    config["backend"]["cache_dir"] = str(tmp_path)
    made = core.preprocess(config, frame)
    found = core.preprocess(config, frame)

    assert isinstance(made, core.data.Processed)
    assert (made.hit, found.hit) == (False, True)
    assert made.key == found.key
    assert {name: split.rows for name, split in made.splits.items()} == {"training": 42, "validation": 6, "test": 12}
    assert made.splits["training"].read(0, 2).column_names == ["x", "c", "y"]
    other = core.preprocess(config, frame, random_seed=1)
    assert other.key != made.key


def test_seeds(config, frame, tmp_path, expected):
    other = core.Model(config).train(frame, output_directory=tmp_path, random_seed=1)

    assert other.training_statistics != expected.training_statistics
    for seed in (-1, 2**63):
        with pytest.raises(UserError, match="--random-seed"):
            core.preprocess(config, frame, random_seed=seed)


def test_no_secret_is_left_behind(config, frame, tmp_path, capfd):
    secret = "hunter2-is-a-secret"
    config["backend"] |= {
        "cache_dir": f"{tmp_path}/cache",
        "cache_credentials": {"s3": {"key": "me", "secret": secret}},
    }
    frame.to_csv(tmp_path / "a.csv", index=False)
    model = core.Model(config)

    run = model.train(tmp_path / "a.csv", output_directory=tmp_path)
    model.evaluate(frame)
    core.Model(config, overrides=["trainer.epochs=3"]).train(model_resume_path=run.output_directory)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "manifest.json" for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in repr(model.config) + repr(run) + "".join(capfd.readouterr())


def every_error() -> list[type[errors.CoreError]]:
    found = [errors.CoreError]
    for kind in found:
        found += kind.__subclasses__()
    return found


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_errors_cross_processes(kind):
    problems = [
        errors.Problem(message="no", path="a.b", found=[1], expected="2", hint="try"),
        errors.Problem(message="also"),
    ]
    error = kind.__new__(kind)
    errors.CoreError.__init__(error, problems)

    copied = pickle.loads(pickle.dumps(error))

    assert type(copied) is kind
    assert str(copied) == str(error)
    assert (copied.path, copied.found, copied.expected, copied.hint) == ("a.b", [1], "2", "try")
    assert [attrs.astuple(problem) for problem in copied.problems] == [attrs.astuple(problem) for problem in problems]


def test_an_error_with_arguments_of_its_own_crosses_too():
    copied = pickle.loads(pickle.dumps(Unparsable(3, "ten", "a number")))

    assert (type(copied), copied.row, copied.found, copied.expected) == (Unparsable, 3, "ten", "a number")


def test_errors_carry_their_parts(config, frame, expected, tmp_path):
    with pytest.raises(DataError) as raised:
        core.Model(config).train(frame.drop(columns="x"), output_directory=tmp_path)
    assert raised.value.path == "input_features.x"

    shutil.copytree(expected.model_path, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError) as damaged:
        core.Model.load(tmp_path / "model")
    assert damaged.value.path.endswith("model.safetensors")
    assert damaged.value.hint
