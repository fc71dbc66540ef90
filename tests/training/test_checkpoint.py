"""Checkpoints: what comes back is what went in, and what is half-written or damaged is never taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from core.errors import ModelError
from core.specs import StrategyOptions
from core.storage import Location
from core.strategy import Strategy
from core.training import checkpoint
from core.training.checkpoint import Progress
from core.training.optimizers import OPTIMIZERS

PARTS = ["model.safetensors", "optimizer.safetensors", "state.json"]


def trained(optimizer: str, steps: int, start: dict | None = None) -> Strategy:
    torch.manual_seed(0)
    strategy = Strategy(StrategyOptions(), torch.device("cpu"))
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    strategy.prepare(model, lambda parameters: OPTIMIZERS[optimizer]().build(parameters, 0.05))
    if start is not None:
        strategy.load(start)
    for step in range(steps):
        rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(step if start is None else step + 3))
        strategy.backward(strategy.model(rows).square().mean())
        strategy.step(1.0)
    return strategy


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_training_goes_on_as_if_it_had_never_stopped(tmp_path, optimizer):
    # given: six steps in one go
    expected = trained(optimizer, 6).state()
    # when: three, a checkpoint, three more
    saved = checkpoint.save(Location(tmp_path), trained(optimizer, 3).state(), Progress(step=3))
    actual = trained(optimizer, 3, checkpoint.load_state(saved)).state()
    # then
    for name, tensor in expected["model"].items():
        assert tensor.equal(actual["model"][name]), name
    assert expected["optimizer"]["state"].keys() == actual["optimizer"]["state"].keys()


def test_progress_comes_back(tmp_path):
    progress = Progress(
        step=3, epoch=1, batch=2, losses=[0.5], rows=64, best_round=0, best_value=float("nan"),
        statistics={"training": {"y": {"loss": [0.1]}}}, plateau={"cuts": 1, "best": 0.2, "rounds": 0},
    )  # fmt: skip
    saved = checkpoint.save(Location(tmp_path), trained("adam", 1).state(), progress)
    assert repr(checkpoint.load_progress(saved)) == repr(progress)


def test_only_the_newest_is_kept_and_half_written_ones_are_not_seen(tmp_path):
    state = trained("adam", 1).state()
    checkpoint.save(Location(tmp_path), state, Progress(step=9))
    (tmp_path / ".step-0000000012-abc").mkdir()
    newest = checkpoint.save(Location(tmp_path), state, Progress(step=10))
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000010"]
    assert checkpoint.latest(Location(tmp_path)) == newest
    assert checkpoint.latest(Location(tmp_path / "nowhere")) is None


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", ["truncated", "gone"])
def test_a_damaged_checkpoint_is_named(tmp_path, part, damage):
    saved = checkpoint.save(Location(tmp_path), trained("adam", 1).state(), Progress(step=1))
    if damage == "gone":
        Path(saved, part).unlink()
    else:
        Path(saved, part).write_bytes(Path(saved, part).read_bytes()[:20])
    with pytest.raises(ModelError, match="cannot be read") as caught:
        checkpoint.load_state(saved)
    assert caught.value.path == str(saved)
