"""The profile tells where the time went, all of it, and blames the right part."""

from __future__ import annotations

import time
from typing import Any

import pytest

import core
from core.loaders.memory import MemoryLoader
from core.training.profile import PARTS


class Profiled(core.Callback):
    """Keeps the profile, and the seconds from the loop's start to its end; dawdles for `pause` in each batch."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause

    def on_train_start(self, **details: Any) -> None:
        self.began = time.perf_counter()

    def on_batch_end(self, **details: Any) -> None:
        time.sleep(self.pause)

    def on_train_end(self, *, profile: dict[str, float], **details: Any) -> None:
        self.seconds = time.perf_counter() - self.began
        self.profile = profile


@pytest.fixture
def profiled(config, dataset, tmp_path):
    def run(callback: Profiled, **trainer: Any) -> dict[str, float]:
        config["trainer"] |= trainer
        core.Model(config, callbacks=[callback]).train(dataset, output_directory=tmp_path / "results")
        return callback.profile

    return run


@pytest.mark.parametrize("trainer", [{}, {"exact": True, "exact_shards": 4}], ids=["ordinary", "exact"])
def test_every_second_is_in_one_part(profiled, trainer):
    callback = Profiled()
    profile = profiled(callback, **trainer)
    assert list(profile) == list(PARTS)
    assert all(seconds > 0 for seconds in profile.values())
    assert sum(profile.values()) - profile["start"] == pytest.approx(callback.seconds, rel=0.05)


def test_slow_reading_is_waiting_for_data(profiled, monkeypatch):
    whole = MemoryLoader.batches

    def slow(*arguments: Any, **options: Any):
        for batch in whole(*arguments, **options):
            time.sleep(0.02)
            yield batch

    monkeypatch.setattr(MemoryLoader, "batches", slow)
    profile = profiled(Profiled(), epochs=1)
    assert profile["data"] >= 5 * 0.02  # batches of the training set
    assert profile["forward"] < profile["data"]


def test_a_slow_callback_is_not_the_models_fault(profiled):
    profile = profiled(Profiled(pause=0.05), epochs=1)
    assert max(profile, key=profile.__getitem__) in ("other", "start")
    assert profile["other"] >= 5 * 0.05
