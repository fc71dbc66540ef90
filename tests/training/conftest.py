"""A small data set and config that every training test starts from."""

from __future__ import annotations

import copy
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
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 16},
    "preprocessing": {"split": {"type": "random", "probabilities": [0.8, 0.1, 0.1]}},
    "trainer": {"epochs": 3, "batch_size": 32, "learning_rate": 0.01},
    "backend": {"type": "local"},
}


@pytest.fixture
def config() -> dict[str, Any]:
    """A fresh config, to be changed by the test."""
    return copy.deepcopy(CONFIG)


@pytest.fixture
def frame() -> pd.DataFrame:
    """161 rows: 129 to train on, so that a batch of 32 leaves a last batch of one row."""
    random = np.random.default_rng(0)
    rows = 161
    a, b = random.normal(size=(2, rows))
    kind = random.choice(["x", "y", "z"], rows)
    label = a + (kind == "x") + random.normal(scale=0.3, size=rows) > 0.3
    return pd.DataFrame({"a": a, "b": b, "kind": kind, "label": label})


@pytest.fixture
def dataset(frame: pd.DataFrame, tmp_path: Path) -> Path:
    """The frame as a CSV file."""
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


Train = Callable[..., tuple["core.Run", list[float]]]


@pytest.fixture
def train(dataset: Path, tmp_path: Path, step_losses: type[Any]) -> Train:
    """Train on the data set; returns the run and the loss of each step."""

    def run(config: dict[str, Any], callbacks: tuple[core.Callback, ...] = (), **settings: Any) -> Any:
        losses = step_losses()
        model = core.Model(config, callbacks=[losses, *callbacks])
        settings.setdefault("dataset", str(dataset))
        finished = model.train(output_directory=tmp_path / "results", **settings)
        return finished, losses.losses

    return run
