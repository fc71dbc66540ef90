"""Checkpoints that any strategy on any number of workers can continue.

``checkpoints/step-<n>/`` holds the full weights, the optimiser's state by parameter name (both safetensors: nothing
here is ever unpickled) and the loop's state as JSON. It counts once ``state.json`` is there, which is last; the one
before is kept until then.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
import torch

from core.errors import ModelError, StorageError
from core.run import read_tensors, write_tensors
from core.storage import Location

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
SEPARATOR = "::"
"""Between a parameter's name and the name of its optimiser state; module names hold no colon."""


@attrs.define(kw_only=True)
class Progress:
    """Where a run is.

    Attributes:
        step: optimiser steps done.
        epoch, batch: the epoch under way, from 0, and the batches of it that are done.
        round: evaluations done.
        losses, rows: sums of the rows' losses by output, and the rows, since the last evaluation.
        statistics: as in ``training_statistics.json``.
        best_round, best_value: the evaluation whose weights are in ``model/``, and its validation metric.
        plateau: state of `core.training.schedule.Plateau`.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    round: int = 0
    losses: list[float] = attrs.field(factory=list)
    rows: int = 0
    statistics: dict[str, dict[str, dict[str, list[float]]]] = attrs.field(factory=dict)
    best_round: int | None = None
    best_value: float | None = None
    plateau: dict[str, Any] = attrs.field(factory=dict)
    stopped_early: bool = False


def save(folder: Location, state: dict[str, Any], progress: Progress) -> Location:
    """Write a checkpoint under `folder`; returns its folder. Only the newest is kept."""
    target = folder / f"step-{progress.step:010d}"
    tensors, scalars = _split_optimizer_state(state["optimizer"]["state"])
    described = {
        "format": 1,
        "progress": attrs.asdict(progress),
        "optimizer": {"param_groups": state["optimizer"]["param_groups"], "scalars": scalars},
    }
    with target.replacing(last=STATE) as files:
        write_tensors(files / MODEL, state["model"])
        write_tensors(files / OPTIMIZER, tensors)
        (files / STATE).write_text(json.dumps(described))
    for name in folder.listdir():
        if name != target.name:
            (folder / name).remove()
    return target


def latest(folder: Location) -> Location | None:
    """The newest complete checkpoint, if there is one."""
    complete = (folder / name for name in reversed(folder.listdir()) if name.startswith("step-"))
    return next((place for place in complete if (place / STATE).exists()), None)


def load_progress(checkpoint: Location) -> Progress:
    """Where the run that wrote `checkpoint` was."""
    return Progress(**_described(checkpoint)["progress"])


def load_state(checkpoint: Location) -> dict[str, Any]:
    """What `core.strategy.Strategy.load` takes."""
    described = _described(checkpoint)["optimizer"]
    try:
        model, tensors = read_tensors(checkpoint / MODEL), read_tensors(checkpoint / OPTIMIZER)
    except (StorageError, ValueError) as error:
        raise _damaged(checkpoint, error) from error
    state: dict[str, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *described["scalars"].items()]:
        parameter, _, entry = key.rpartition(SEPARATOR)
        state.setdefault(parameter, {})[entry] = value
    return {"model": model, "optimizer": {"state": state, "param_groups": described["param_groups"]}}


def _split_optimizer_state(state: dict[str, dict[str, Any]]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    flat = {f"{name}{SEPARATOR}{key}": value for name, entry in state.items() for key, value in entry.items()}
    tensors = {key: value for key, value in flat.items() if isinstance(value, torch.Tensor)}
    return tensors, {key: value for key, value in flat.items() if not isinstance(value, torch.Tensor)}


def _described(checkpoint: Location) -> dict[str, Any]:
    try:
        described: dict[str, Any] = json.loads((checkpoint / STATE).read_bytes())
    except (StorageError, ValueError) as error:
        raise _damaged(checkpoint, error) from error
    return described


def _damaged(checkpoint: Location, error: Exception) -> ModelError:
    return ModelError(
        f"checkpoint cannot be read: {error}",
        path=str(checkpoint),
        hint="Delete this folder to continue from an older checkpoint, or train again without --model-resume-path.",
    )
