"""Whole runs, as users start them: by core itself, by horovodrun and by torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.torch import load_file

import core

pytest.importorskip("horovod.torch", reason="Horovod is not compiled: python -m core_horovod.build")


@pytest.fixture
def config() -> dict[str, Any]:
    return {
        "input_features": [{"name": "a", "type": "number"}, {"name": "kind", "type": "category"}],
        "output_features": [{"name": "label", "type": "binary"}],
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 8},
        "preprocessing": {"split": {"type": "random", "probabilities": [0.8, 0.1, 0.1]}},
        "trainer": {
            "epochs": 2,
            "batch_size": 32,
            "learning_rate": 0.01,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": {"clipglobalnorm": 0.5},
        },
        "backend": {"type": "horovod", "trainer": {"num_workers": 2, "use_gpu": False}},
    }


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """161 rows, so that the last batch has fewer rows than there are workers."""
    random = np.random.default_rng(0)
    a, kind = random.normal(size=161), random.choice(["x", "y", "z"], 161)
    path = tmp_path / "data.csv"
    pd.DataFrame({"a": a, "kind": kind, "label": a + (kind == "x") > 0.3}).to_csv(path, index=False)
    return path


def train(config: dict[str, Any], dataset: Path, output: Path) -> core.Run:
    return core.Model(config).train(dataset=str(dataset), output_directory=output)


def assert_same_run(found: Path, expected: core.Run) -> None:
    weights = load_file(expected.model_path / "model.safetensors")
    for name, tensor in load_file(found / "model" / "model.safetensors").items():
        assert tensor.allclose(weights[name], rtol=1e-4, atol=1e-6), name
    statistics = json.loads((found / "training_statistics.json").read_text())
    assert statistics["test"]["label"]["loss"] == pytest.approx(
        expected.training_statistics["test"]["label"]["loss"], rel=1e-4
    )


@pytest.fixture
def alone(config, dataset, tmp_path) -> core.Run:
    """The single process that every group must agree with."""
    return train({**config, "backend": {"type": "local"}}, dataset, tmp_path / "alone")


@pytest.mark.parametrize("workers", [1, 2])
def test_type_horovod_starts_workers_that_equal_a_single_process(config, dataset, tmp_path, alone, workers):
    config["backend"]["trainer"]["num_workers"] = workers
    run = train(config, dataset, tmp_path / "own")
    assert_same_run(Path(str(run.model_path)).parent, alone)


@pytest.mark.slow
def test_exact_mode_gives_the_same_bits_on_one_process_and_on_two_workers(config, dataset, tmp_path):
    del config["trainer"]["gradient_accumulation_steps"]
    config["trainer"]["exact"] = True
    config["combiner"]["dropout"] = 0.3
    found = train(config, dataset, tmp_path / "workers")
    expected = train({**config, "backend": {"type": "local"}}, dataset, tmp_path / "alone")

    weights = load_file(expected.model_path / "model.safetensors")
    for name, tensor in load_file(found.model_path / "model.safetensors").items():
        assert tensor.equal(weights[name]), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["horovod.runner.launch", "-np", "2", sys.executable],
        ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    ],
    ids=["horovodrun", "torchrun"],
)
def test_workers_of_a_launcher_equal_a_single_process(config, dataset, tmp_path, alone, launcher):
    del config["backend"]["trainer"]["num_workers"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [
        sys.executable, "-m", *launcher, "-m", "core", "train", "--config", str(path), "--dataset", str(dataset),
        "--output-directory", str(tmp_path / "launched"), "--quiet",
    ]  # fmt: skip
    if "horovod" in launcher[0]:
        command[:3] = [str(Path(sys.executable).with_name("horovodrun"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best weights") == 1, "one worker speaks for the run"
    assert_same_run(tmp_path / "launched" / "experiment_run", alone)
