"""A small data set that uses every kind of encoder, and how to train on it."""

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
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 7},
    "preprocessing": {"split": {"type": "random", "probabilities": [0.8, 0.1, 0.1]}},
    "trainer": {
        "epochs": 2,
        "batch_size": 32,
        "learning_rate": 0.01,
        "gradient_clipping": {"clipglobalnorm": 0.5},
    },
    "backend": {"type": "local"},
}


@pytest.fixture
def config() -> dict[str, Any]:
    """A fresh config, to be changed by the test."""
    return copy.deepcopy(CONFIG)


@pytest.fixture
def frame() -> pd.DataFrame:
    """161 rows: 129 to train on, so that a last batch has fewer than there are workers."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 161))
    kind = random.choice(["x", "y", "z"], 161)
    label = a + (kind == "x") + random.normal(scale=0.3, size=161) > 0.3
    words = np.array(["red", "green", "blue", "black"])
    text = [" ".join(words[random.integers(4, size=random.integers(1, 6))]) for _ in range(161)]
    return pd.DataFrame({"a": a, "b": b, "kind": kind, "label": label, "text": text})


@pytest.fixture
def train(frame: pd.DataFrame, tmp_path: Path, step_losses: type[Any]) -> Callable[..., tuple[core.Run, list[float]]]:
    """Train on `frame`; returns the run and the loss of each step."""

    def run(config: dict[str, Any], **settings: Any) -> tuple[core.Run, list[float]]:
        losses = step_losses()
        model = core.Model(config, callbacks=[losses])
        return model.train(dataset=frame, output_directory=tmp_path / "results", **settings), losses.losses

    return run
