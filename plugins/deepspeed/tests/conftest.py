"""A small data set, and how to train on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import core
from core.testing.workers import Launcher

CONFIG: dict[str, Any] = {
    "input_features": [
        {"name": "a", "type": "number"},
        {"name": "b", "type": "number"},
        {"name": "kind", "type": "category"},
    ],
    "output_features": [{"name": "label", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 16},
    "trainer": {"epochs": 2, "batch_size": 32, "learning_rate": 0.01},
}


@pytest.fixture(scope="session")
def deepspeed_launcher() -> Iterator[Launcher]:
    """Starts workers that have DeepSpeed imported already."""
    with Launcher("core_deepspeed.engine") as launcher:
        yield launcher


@pytest.fixture
def train(tmp_path: Path, step_losses: type[Any]) -> Callable[..., tuple[core.Run, list[float]]]:
    """Train on 161 rows with a backend section; returns the run and the loss of each step."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 161))
    kind = random.choice(["x", "y", "z"], 161)
    words = random.choice(["a good thing", "a bad thing", "neither"], 161)
    frame = pd.DataFrame({"a": a, "b": b, "kind": kind, "words": words, "label": a + (kind == "x") > 0.3})

    def run(backend: dict[str, Any], *, inputs: Any = (), trainer: Any = None, **sections: Any) -> Any:
        losses = step_losses()
        config = {**CONFIG, "backend": {"type": "local", **backend}, **sections}
        config["input_features"] = [*CONFIG["input_features"], *inputs]
        config["trainer"] = {**CONFIG["trainer"], **(trainer or {})}
        model = core.Model(config, callbacks=[losses])
        return model.train(dataset=frame, output_directory=tmp_path / "results"), losses.losses

    return run
