"""From the `backend` section to where a job runs: decided before any data is read, and said why."""

from __future__ import annotations

import os
from typing import Literal

import attrs

from core.backends.detect import external_launcher
from core.config.fields import Selected
from core.config.sections import Backend
from core.errors import ConfigError, PluginError
from core.registry import registry
from core.specs import StrategySpec

OWN_STRATEGY = ("deepspeed", "horovod")
"""Backend types, and launchers, that are named after the strategy they run unless the config says otherwise."""


@attrs.frozen(kw_only=True)
class Placement:
    """Where and how a job runs.

    Attributes:
        launcher: the external launcher this process is a worker of, or None.
        workers: number of worker processes; 1 with a strategy that is not distributed runs in this process.
        device: ``cpu`` or ``cuda``.
        retries: restarts of the workers after one dies.
        notes: one line for each key that is set and does not apply here.
    """

    launcher: str | None
    workers: int
    strategy: Selected
    processor: Selected
    loader: Selected
    device: Literal["cpu", "cuda"]
    retries: int
    notes: tuple[str, ...] = ()

    @property
    def in_process(self) -> bool:
        """Whether training needs no worker processes of its own."""
        return self.launcher is None and not is_distributed(self.strategy)


def is_distributed(strategy: Selected) -> bool:
    spec = registry().spec("strategy", strategy.type)
    assert isinstance(spec, StrategySpec)
    return spec.distributed


def place(backend: Backend) -> Placement:
    """Decide, and check the decision against this machine.

    Raises:
        ConfigError: the section asks for what this machine, or this version, cannot give.
        PluginError: a chosen plugin cannot be used.
    """
    launcher = external_launcher()
    kind = backend.type or (launcher if launcher in OWN_STRATEGY else "local")
    if kind == "ray":
        raise PluginError(
            "the ray backend is not part of this version of core",
            path="backend.type",
            found="ray",
            expected="local, or a launcher such as torchrun",
            hint="Everything else in the section may stay: --backend local runs the same job on this machine.",
        )
    device = _device(backend)
    workers, notes = _workers(backend, launcher, device)
    strategy = backend.trainer.strategy or _default("strategy", kind if kind in OWN_STRATEGY else _for_workers(workers))
    if not is_distributed(strategy) and workers > 1:
        raise ConfigError(
            f"strategy {strategy.type!r} runs in one process",
            path="backend.trainer.strategy",
            found=strategy.type,
            expected=f"a strategy for {workers} workers, such as ddp",
        )
    processor = backend.processor or _default("processor", "pandas")
    # What is missing is said now, not after preprocessing.
    registry().implementation("processor", processor.type)
    registry().implementation("strategy", strategy.type)
    registry().implementation("loader", backend.loader.type)
    retries = backend.trainer.max_retries
    return Placement(
        launcher=launcher,
        workers=workers,
        strategy=strategy,
        processor=processor,
        loader=backend.loader,
        device=device,
        retries=0 if retries is None or launcher else retries,
        notes=tuple(notes + _not_applicable(backend, launcher, strategy)),
    )


def _default(kind: Literal["processor", "strategy"], name: str) -> Selected:
    try:
        return Selected(type=name, options=registry().spec(kind, name).options())
    except PluginError as error:
        raise PluginError([attrs.evolve(error.problems[0], path="backend.type")]) from None


def _for_workers(workers: int) -> str:
    return "ddp" if workers > 1 else "single"


def _device(backend: Backend) -> Literal["cpu", "cuda"]:
    import torch

    wanted, available = backend.trainer.use_gpu, torch.cuda.is_available()
    if wanted and not available:
        raise ConfigError(
            "there is no usable GPU on this machine",
            path="backend.trainer.use_gpu",
            found=True,
            expected="false, or leave the key out",
            hint="torch.cuda.is_available() is false: check the driver and that torch is a CUDA build.",
        )
    return "cuda" if available and wanted is not False else "cpu"


def _workers(backend: Backend, launcher: str | None, device: str) -> tuple[int, list[str]]:
    import torch

    asked = backend.trainer.num_workers
    if launcher is not None:
        size = int(os.environ.get("WORLD_SIZE") or os.environ["HOROVOD_SIZE"])
        ignored = [f"backend.trainer.num_workers does not apply: {launcher} started {size} workers"]
        return size, ignored if asked not in (None, size) else []
    chosen = backend.trainer.strategy
    spread = backend.type in OWN_STRATEGY or (chosen is not None and is_distributed(chosen))
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    workers = asked or (max(1, gpus) if spread else 1)
    if device == "cuda" and workers > gpus:
        raise ConfigError(
            f"each worker needs a GPU of its own and this machine has {gpus}",
            path="backend.trainer.num_workers",
            found=workers,
            expected=f"at most {gpus}, or use_gpu: false",
        )
    return workers, []


def _not_applicable(backend: Backend, launcher: str | None, strategy: Selected) -> list[str]:
    """One line for each key that is legal here and has no effect here."""
    trainer = backend.trainer
    notes = []
    if trainer.resources_per_worker:
        notes.append("backend.trainer.resources_per_worker does not apply: it asks a Ray cluster, and this is none")
    if trainer.logdir is not None and not is_distributed(strategy):
        notes.append("backend.trainer.logdir applies to TensorBoard events alone: there are no worker processes to log")
    if trainer.max_retries and launcher is not None:
        notes.append(f"backend.trainer.max_retries does not apply: restarts are the business of {launcher}")
    elif trainer.max_retries and not is_distributed(strategy):
        notes.append("backend.trainer.max_retries does not apply: there are no worker processes to restart")
    return notes
