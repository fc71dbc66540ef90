"""A data set, a config and the shared cluster."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import core

CONFIG: dict[str, Any] = {
    "input_features": [
        {"name": "a", "type": "number"},
        {"name": "b", "type": "number"},
        {"name": "kind", "type": "category"},
    ],
    "output_features": [{"name": "label", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 16, "dropout": 0.2},
    "preprocessing": {"split": {"type": "random", "probabilities": [0.8, 0.1, 0.1]}},
    "trainer": {"epochs": 4, "batch_size": 32, "learning_rate": 0.01, "early_stop": -1},
    "backend": {
        "type": "ray",
        "processor": "pandas",
        "trainer": {"num_workers": 2, "resources_per_worker": {"CPU": 1}, "max_retries": 0},
    },
}


@pytest.fixture(scope="session")
def untouched() -> dict[str, Any]:
    """The config that every test starts from."""
    return CONFIG


@pytest.fixture
def config(untouched: dict[str, Any]) -> dict[str, Any]:
    """A fresh config, to be changed by the test."""
    return copy.deepcopy(untouched)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """161 rows, 129 of them to train on: the last batch has one, and a worker none."""
    random = np.random.default_rng(0)
    rows = 161
    a, b = random.normal(size=(2, rows))
    kind = random.choice(["x", "y", "z"], rows)
    label = a + (kind == "x") + random.normal(scale=0.3, size=rows) > 0.3
    path = tmp_path_factory.mktemp("data") / "data.csv"
    pd.DataFrame({"a": a, "b": b, "kind": kind, "label": label}).to_csv(path, index=False)
    return path


class Watch(core.Callback):
    """Remembers the loss of every step, and does something at the end of an evaluation, while the workers wait."""

    def __init__(self, at: int = 0, act: Callable[[], object] | None = None) -> None:
        self.losses: list[float] = []
        self._left = at
        self._act = act

    def on_batch_end(self, *, loss: float, **details: Any) -> None:
        self.losses.append(loss)

    def should_stop(self) -> bool:
        self._left -= 1
        if self._left == 0 and self._act is not None:
            self._act()
        return False


@pytest.fixture
def watch() -> type[Watch]:
    return Watch


@pytest.fixture
def train(dataset: Path, tmp_path: Path) -> Callable[..., core.Run]:
    """Train on the data set, under results/."""

    def run(config: dict[str, Any], *callbacks: core.Callback, **settings: Any) -> core.Run:
        settings.setdefault("dataset", str(dataset))
        return core.Model(config, callbacks=callbacks).train(output_directory=tmp_path / "results", **settings)

    return run


@pytest.fixture(scope="session")
def expected(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[core.Run, list[float]]:
    """The config on two processes of this machine: the run, and the loss of every step."""
    alone = copy.deepcopy(CONFIG)
    alone["backend"] = {"type": "local", "trainer": {"num_workers": 2}}
    watched = Watch()
    model = core.Model(alone, callbacks=[watched])
    return model.train(str(dataset), output_directory=tmp_path_factory.mktemp("expected")), watched.losses


@pytest.fixture
def processes() -> Callable[[], list[int]]:
    """The worker processes of Ray Train below this process, by age."""

    def found() -> list[int]:
        pattern = subprocess.run(["pgrep", "-f", "^ray::RayTrainWorker"], capture_output=True, text=True, check=False)
        return [int(pid) for pid in pattern.stdout.split() if _is_ours(int(pid))]

    return found


def _is_ours(pid: int) -> bool:
    """Whether the process belongs to a cluster that this process started."""
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            return False
        if pid == os.getpid():
            return True
    return False
