"""`core plan`: what a run would do, told without doing it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import yaml

import core
from core.cli import main

CONFIG = {
    "input_features": [{"name": "a", "type": "number"}, {"name": "kind", "type": "category"}],
    "output_features": [{"name": "y", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 8},
    "preprocessing": {"split": {"type": "random", "probabilities": [0.8, 0.1, 0.1]}},
    "trainer": {"batch_size": 30, "max_rows_per_device": 10, "epochs": 2, "optimizer": "adam"},
    "backend": {"type": "local", "trainer": {"use_gpu": False, "num_workers": 2}},
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": range(100), "kind": ["x", "y"] * 50, "y": [0, 1] * 50, "unused": "text"})
    frame.to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(capsys, *words):
    status = main(["plan", "-c", "config.yaml", "--dataset", "data.csv", "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def test_before_the_first_run(here, capsys):
    # when
    status, plan = planned(capsys)
    # then
    assert status == 0
    assert plan["backend"]["type"] == "local"
    assert plan["backend"]["why"] == "backend.type"
    assert plan["processor"] == {"type": "pandas", "partitions": 1}
    assert plan["strategy"] == {"type": "ddp", "options": {}}
    assert (plan["workers"]["number"], plan["workers"]["device"]) == (2, "cpu")
    assert plan["data"] == {
        "name": "data.csv", "columns": 3, "rows": None, "bytes": (here / "data.csv").stat().st_size,
    }  # fmt: skip
    assert plan["cache"]["hit"] is False
    assert plan["batch"]["rows"] == 30
    assert plan["batch"]["rows_per_worker"] == [15, 15]
    assert (plan["batch"]["micro_batches"], plan["batch"]["rows_per_micro_batch"]) == (2, 8)
    assert plan["batch"]["steps_per_epoch"] is None
    assert plan["model"]["parameters"] is None
    assert plan["problems"] == []
    assert {path.name for path in here.iterdir()} == {"config.yaml", "data.csv"}, "nothing was done"


def test_once_the_data_is_processed(here, capsys):
    # given
    processed = core.preprocess("config.yaml", "data.csv")
    capsys.readouterr()
    # when
    _, plan = planned(capsys)
    # then
    assert plan["cache"]["hit"] is True
    assert plan["cache"]["key"] == processed.key
    assert plan["batch"]["steps_per_epoch"] == 3
    assert plan["batch"]["steps"] == 6
    assert plan["data"]["rows"] == 100
    assert plan["loader"]["bytes"] == 100 * (4 + 4 + 1)
    model = core.Model("config.yaml").train("data.csv", output_directory=here / "results")
    from core.run import open_model

    weights = open_model(model.model_path).weights()
    parameters = sum(weight.numel() for weight in weights.values())
    assert plan["model"]["parameters"] == parameters
    assert plan["model"]["bytes"] == parameters * 4 * 4, "weights, gradients, and two moments of Adam"


def test_every_problem_at_once(here, capsys):
    # given: too many workers for the strategy, a strategy that breaks a promise, and a column that is not there
    words = ["--set", "trainer.exact=true", "-b", "{trainer: {num_workers: 3}}", "--set", "output_features.0.name=z"]
    # when
    status, plan = planned(capsys, *words)
    # then
    assert status == 2
    assert [problem["path"] for problem in plan["problems"]] == ["trainer.exact", "output_features.z"]


def test_problems_of_the_config_alone(here, capsys):
    status, plan = planned(capsys, "--set", "trainer.epoch=3", "--set", "trainer.batch_size=no")
    assert status == 2
    assert len(plan["problems"]) == 2


def test_a_cluster_is_not_started(here, capsys):
    pytest.importorskip("ray")
    status, plan = planned(capsys, "-b", "{type: ray, trainer: {num_workers: 1}}")
    import ray

    assert status == 0
    assert plan["backend"]["type"] == "ray"
    assert plan["workers"]["resources"] == {"CPU": 1.0}
    assert plan["workers"]["retries"] == 3
    assert plan["backend"]["starts"] is not ray.is_initialized()


def test_people_read_lines(here, capsys):
    assert main(["plan", "-c", "config.yaml", "--dataset", "data.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "backend", "processor", "strategy", "workers", "data", "cache", "batch", "loader", "model",
    ]  # fmt: skip
    assert "30 rows a step, 15 on each worker in 2 parts of up to 8" in lines[6]
