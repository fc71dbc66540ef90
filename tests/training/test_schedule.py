"""Learning rates by step, and the arithmetic of batches."""

from __future__ import annotations

import pytest

from core.config.sections import LearningRateScheduler, Trainer
from core.training.batching import batching, learning_rate, not_applicable
from core.training.schedule import Plateau, factor


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, {0: 1, 99: 1}),
        ({"warmup_fraction": 0.1}, {0: 0.1, 4: 0.5, 9: 1, 50: 1}),
        ({"warmup_evaluations": 2}, {0: 0.05, 19: 1}),
        ({"decay": "linear"}, {0: 1, 25: 0.75, 50: 0.5, 99: 0.01}),
        ({"decay": "linear", "warmup_fraction": 0.5}, {49: 1, 75: 0.5}),
        ({"decay": "exponential", "decay_rate": 0.5, "decay_steps": 10}, {0: 1, 10: 0.5, 5: 0.5**0.5}),
        ({"decay": "exponential", "decay_rate": 0.5, "decay_steps": 10, "staircase": True}, {9: 1, 19: 0.5, 20: 0.25}),
        ({"decay": "cosine"}, {0: 1, 50: 0.5, 100: 0}),
        ({"decay": "cosine", "eta_min": 0.2}, {0: 1, 50: 0.6, 100: 0.2}),
        ({"decay": "cosine", "t_0": 10, "t_mult": 2}, {0: 1, 5: 0.5, 10: 1, 20: 0.5, 30: 1}),
    ],
)
def test_factor_by_step(schedule, expected):
    found = {
        step: factor(LearningRateScheduler(**schedule), step, total_steps=100, steps_per_round=10) for step in expected
    }
    assert found == pytest.approx(expected)


def test_a_plateau_cuts_the_rate_as_often_as_allowed():
    schedule = LearningRateScheduler(reduce_on_plateau=2, reduce_on_plateau_patience=2, reduce_on_plateau_rate=0.1)
    plateau, factors = Plateau(), []
    for value in [1.0, 0.5, 0.6, 0.6, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]:
        plateau = plateau.after(schedule, value, maximize=False)
        factors.append(plateau.factor(schedule))
    assert factors == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01])


@pytest.mark.parametrize(
    ("trainer", "workers", "rows", "parts"),
    [
        ({}, 2, 128, 1),
        ({"batch_size": 96}, 3, 96, 1),
        ({"batch_size": 96, "gradient_accumulation_steps": 4}, 1, 96, 4),
        ({"batch_size_per_worker": 8}, 3, 24, 1),
        ({"effective_batch_size": 64, "batch_size": 16}, 1, 64, 4),
        ({"effective_batch_size": 64, "gradient_accumulation_steps": 2}, 2, 64, 2),
        ({"batch_size": 100, "max_rows_per_device": 20}, 2, 100, 3),
        ({"batch_size": 100, "max_rows_per_device": 200}, 2, 100, 1),
    ],
)
def test_rows_and_parts_of_a_step(trainer, workers, rows, parts):
    made = batching(Trainer(**trainer), workers)
    assert (made.rows, made.parts(made.rows, workers)) == (rows, parts)


@pytest.mark.parametrize(("scaling", "rate"), [("constant", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_rate_scales_only_where_the_batch_grows_with_the_workers(scaling, rate):
    per_worker = Trainer(learning_rate=0.1, batch_size_per_worker=8, learning_rate_scaling=scaling)
    assert learning_rate(per_worker, 4) == pytest.approx(rate)
    whole = Trainer(learning_rate=0.1, batch_size=8, learning_rate_scaling=scaling)
    assert learning_rate(whole, 4) == 0.1
    assert bool(not_applicable(whole)) == (scaling != "constant")
    assert not not_applicable(per_worker)
