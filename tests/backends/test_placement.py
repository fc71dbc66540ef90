"""Where a job runs: what the section asks for, what started this process, and what does not apply."""

from __future__ import annotations

from typing import Any

import pytest

from core.backends.detect import external_launcher
from core.backends.placement import place
from core.config import load
from core.config.sections import Backend
from core.errors import ConfigError
from core.registry import registry

RENDEZVOUS = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def backend(**section: Any) -> Backend:
    config = {
        "input_features": [{"name": "a", "type": "number"}],
        "output_features": [{"name": "b", "type": "number"}],
        "backend": section,
    }
    return load(config).backend


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in (*RENDEZVOUS, "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "launcher"),
    [
        ({}, None),
        ({"RANK": "0"}, None),
        (RENDEZVOUS, "torchrun"),
        ({**RENDEZVOUS, "TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0"}, "torchrun"),
        ({**RENDEZVOUS, "LOCAL_RANK": "0", "CROSS_RANK": "0"}, "deepspeed"),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, "horovod"),
    ],
)
def test_a_launcher_is_known_by_its_variables(environment, launcher):
    assert external_launcher(environment) == launcher


@pytest.mark.parametrize(
    ("section", "strategy", "workers", "in_process"),
    [
        ({}, "single", 1, True),
        ({"type": "local"}, "single", 1, True),
        ({"trainer": {"num_workers": 1}}, "single", 1, True),
        ({"trainer": {"num_workers": 3}}, "ddp", 3, False),
        ({"trainer": {"strategy": "ddp"}}, "ddp", 1, False),
        ({"trainer": {"strategy": {"type": "ddp", "bucket_cap_mb": 5}, "num_workers": 2}}, "ddp", 2, False),
    ],
)
def test_workers_and_strategy_follow_from_each_other(section, strategy, workers, in_process):
    section.setdefault("trainer", {})["use_gpu"] = False
    placed = place(backend(**section))
    assert (placed.strategy.type, placed.workers, placed.in_process) == (strategy, workers, in_process)
    assert placed.processor.type == "pandas"
    assert placed.notes == ()


def test_a_launcher_decides_the_number_of_workers(monkeypatch):
    for name, value in RENDEZVOUS.items():
        monkeypatch.setenv(name, value)
    placed = place(backend(trainer={"num_workers": 2, "max_retries": 2, "use_gpu": False}))
    assert (placed.launcher, placed.workers, placed.strategy.type, placed.retries) == ("torchrun", 4, "ddp", 0)
    assert any("num_workers does not apply" in note for note in placed.notes)
    assert any("max_retries does not apply" in note for note in placed.notes)


@pytest.mark.parametrize(
    ("trainer", "note"),
    [
        ({"resources_per_worker": {"CPU": 2}}, "backend.trainer.resources_per_worker does not apply"),
        ({"max_retries": 3}, "backend.trainer.max_retries does not apply"),
    ],
)
def test_a_key_that_does_not_apply_is_said_in_one_line(trainer, note):
    (line,) = place(backend(trainer={**trainer, "use_gpu": False})).notes
    assert line.startswith(note)


def test_horovodrun_means_the_strategy_horovod(monkeypatch):
    if not registry().usable("strategy", "horovod"):
        pytest.skip("Horovod is not built here")
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    placed = place(backend(trainer={"use_gpu": False}))
    assert (placed.launcher, placed.workers, placed.strategy.type) == ("horovod", 2, "horovod")


def test_a_strategy_of_one_process_is_refused_for_several():
    with pytest.raises(ConfigError, match="runs in one process") as caught:
        place(backend(trainer={"strategy": "single", "num_workers": 2, "use_gpu": False}))
    assert caught.value.path == "backend.trainer.strategy"


def test_a_gpu_that_is_not_there_is_refused():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match="no usable GPU") as caught:
        place(backend(trainer={"use_gpu": True}))
    assert caught.value.path == "backend.trainer.use_gpu"
