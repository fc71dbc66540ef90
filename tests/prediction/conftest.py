"""A small data set with every type of column, and a model trained on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import core

ROWS = 90
CONFIG: dict[str, Any] = {
    "input_features": [
        {"name": "x", "type": "number"},
        {"name": "must", "type": "number", "preprocessing": {"missing_value_strategy": "drop_row"}},
        {"name": "c", "type": "category"},
        {"name": "t", "type": "text"},
    ],
    "output_features": [
        {"name": "yes", "type": "binary"},
        {"name": "which", "type": "category"},
        {"name": "much", "type": "number"},
    ],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 8},
    "trainer": {"epochs": 3, "batch_size": 16, "learning_rate": 0.01},
    "backend": {"type": "local"},
}


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    x, must = random.normal(size=(2, ROWS))
    kind = random.choice(["r", "g", "b"], ROWS)
    return pd.DataFrame(
        {
            "id": [f"row {number}" for number in range(ROWS)],
            "x": x,
            "must": must,
            "c": kind,
            "t": [" ".join(random.choice(["red", "green", "blue"], 3)) for _ in range(ROWS)],
            "yes": x > 0,
            "which": np.where(must > 0.3, "big", np.where(must < -0.3, "small", "none")),
            "much": 100 + 10 * x + (kind == "r"),
        }
    )


@pytest.fixture(scope="session")
def run(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> core.Run:
    return core.Model(CONFIG).train(frame, output_directory=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def model(run: core.Run) -> core.Model:
    return core.Model.load(run.model_path)


@pytest.fixture(scope="session")
def missing(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame where some rows lack what they must have, and some a target."""
    data = frame.copy()
    data.loc[[4, 5, 50], "must"] = None
    data["much"] = data["much"].where(data.index % 7 != 0)
    return data


@pytest.fixture(scope="session")
def files(missing: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It again, in ten files, each of which is a block."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(10):
        missing[number * 9 : number * 9 + 9].to_csv(folder / f"{number}.csv", index=False)
    return folder


@pytest.fixture(params=["process", "processes", "ray"])
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Backend sections: this process, two of this machine, two actors of a cluster with room for just them."""
    if request.param == "process":
        return {"type": "local"}
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    kind = "ray" if request.param == "ray" else "local"
    return {"type": kind, "trainer": {"num_workers": 2, "strategy": "single"}}


@pytest.fixture
def workers() -> Callable[[], list[int]]:
    """The prediction workers below this process: its own, or actors of the cluster that it started."""

    def found() -> list[int]:
        pattern = "^ray::MapWorker|core.prediction.worker"
        pids = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()
        return [int(pid) for pid in pids if os.getpid() in _ancestors(int(pid))]

    return found


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            break
        found.append(pid)
    return found
