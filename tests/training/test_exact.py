"""In exact mode the weights are the same to the last bit, whatever trains and on however many workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import core
from core.errors import ConfigError

GROUPS = [("ddp", 1), ("ddp", 2), ("ddp", 4)]


@pytest.fixture
def config(config):
    """Dropout, batch statistics, clipping, a penalty, and a schedule that looks at metrics: all of which may differ."""
    config["combiner"] |= {"dropout": 0.3, "norm": "batch"}
    config["trainer"] |= {
        "exact": True,
        "epochs": 2,
        "regularization_lambda": 1e-3,
        "gradient_clipping": {"clipglobalnorm": 0.5},
        "learning_rate_scheduler": {"reduce_on_plateau": 2, "reduce_on_plateau_patience": 1},
    }
    return config


@pytest.fixture
def outcome(train, config):
    """Trains with a strategy on a number of workers: the bytes of the weights, every metric, and every step's loss."""

    def run(strategy: str, workers: int, **settings: Any) -> tuple[bytes, dict[str, Any], list[float]]:
        config["backend"]["trainer"] = {"strategy": strategy, "num_workers": workers}
        finished, losses = train(config, **settings)
        return (finished.model_path / "model.safetensors").read_bytes(), finished.training_statistics, losses

    return run


def test_any_strategy_on_any_number_of_workers_gives_the_same_bytes(outcome):
    expected = outcome("single", 1)
    for strategy, workers in GROUPS:
        assert outcome(strategy, workers) == expected, f"{strategy} on {workers}"


def test_without_it_dropout_alone_makes_weights_differ(outcome, config):
    config["trainer"]["exact"] = False
    assert outcome("single", 1)[0] != outcome("ddp", 2)[0]


@pytest.mark.parametrize(
    ("trainer", "workers"),
    [
        ({"max_rows_per_device": 3}, 2),
        ({"gradient_accumulation_steps": 2, "exact_shards": 6}, 3),
        ({"use_mixed_precision": True}, 2),
        ({"optimizer": {"type": "adamw"}, "eval_batch_size": 7, "evaluate_training_set": True}, 4),
    ],
    ids=["micro-batches", "six shards", "mixed precision", "another evaluation"],
)
def test_it_holds_beside_other_settings(outcome, config, trainer, workers):
    config["trainer"] |= trainer
    assert outcome("ddp", workers) == outcome("single", 1)
