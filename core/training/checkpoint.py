"""Checkpoints that any strategy on any number of workers can continue.

``checkpoints/step-<n>/`` holds the full weights, the optimiser's state by parameter name (both safetensors: nothing
here is ever unpickled) and the loop's state as JSON. A folder gets its name only when it is complete, so the newest
name is always good; the one before is kept until then.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from core.errors import ModelError
from core.run import storage_errors

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


def save(folder: Path, state: dict[str, Any], progress: Progress) -> Path:
    """Write a checkpoint under `folder`; returns its folder. Only the newest is kept."""
    name = f"step-{progress.step:010d}"
    temporary = folder / f".{name}-{uuid.uuid4().hex[:8]}"
    with storage_errors("write", folder):
        temporary.mkdir(parents=True)
        try:
            _write({k: v.contiguous() for k, v in state["model"].items()}, temporary / "model.safetensors")
            tensors, scalars = _split_optimizer_state(state["optimizer"]["state"])
            _write(tensors, temporary / "optimizer.safetensors")
            groups = state["optimizer"]["param_groups"]
            described = {
                "format": 1,
                "progress": attrs.asdict(progress),
                "optimizer": {"param_groups": groups, "scalars": scalars},
            }
            (temporary / "state.json").write_text(json.dumps(described))
            target = folder / name
            shutil.rmtree(target, ignore_errors=True)
            os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    for old in folder.iterdir():
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)
    return target


def _write(tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:  # how it says that the disk is full
        raise OSError(str(error)) from error


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint, if there is one."""
    return max(folder.glob("step-*"), default=None, key=lambda path: path.name)


def load_progress(checkpoint: Path) -> Progress:
    """Where the run that wrote `checkpoint` was."""
    return Progress(**_described(checkpoint)["progress"])


def load_state(checkpoint: Path) -> dict[str, Any]:
    """What `core.strategy.Strategy.load` takes."""
    described = _described(checkpoint)["optimizer"]
    try:
        model = load_file(checkpoint / "model.safetensors")
        tensors = load_file(checkpoint / "optimizer.safetensors")
    except (OSError, SafetensorError) as error:
        raise _damaged(checkpoint, error) from error
    state: dict[str, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *described["scalars"].items()]:
        parameter, _, entry = key.rpartition(SEPARATOR)
        state.setdefault(parameter, {})[entry] = value
    return {"model": model, "optimizer": {"state": state, "param_groups": described["param_groups"]}}


def _split_optimizer_state(state: dict[str, dict[str, Any]]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    flat = {f"{name}{SEPARATOR}{key}": value for name, entry in state.items() for key, value in entry.items()}
    tensors = {key: value.contiguous() for key, value in flat.items() if isinstance(value, torch.Tensor)}
    return tensors, {key: value for key, value in flat.items() if not isinstance(value, torch.Tensor)}


def _described(checkpoint: Path) -> dict[str, Any]:
    try:
        described: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    except (OSError, ValueError) as error:
        raise _damaged(checkpoint, error) from error
    return described


def _damaged(checkpoint: Path, error: Exception) -> ModelError:
    return ModelError(
        f"checkpoint cannot be read: {error}",
        path=str(checkpoint),
        hint="Delete this folder to continue from an older checkpoint, or train again without --model-resume-path.",
    )
