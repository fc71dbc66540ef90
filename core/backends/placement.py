"""From the `backend` section to where a job runs: decided before any data is read, and said why."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import attrs

from core.backends.detect import answers, external_launcher, in_ray_session, ray_address
from core.config.fields import Selected
from core.config.sections import Backend
from core.errors import ConfigError, PluginError
from core.registry import registry
from core.specs import StrategySpec

if TYPE_CHECKING:
    from core.backends.ray.cluster import Cluster

log = logging.getLogger("core")

OWN_STRATEGY = ("deepspeed", "horovod")
"""Backend types, and launchers, that are named after the strategy they run unless the config says otherwise."""

RAY_RETRIES = 3
Device = Literal["cpu", "cuda"]


@attrs.frozen(kw_only=True)
class Placement:
    """Where and how a job runs.

    Attributes:
        kind: `ray`, or `local` for everything without a cluster: this process, workers of its own, a launcher's group.
        why: what decided `kind`, for people.
        launcher: the external launcher this process is a worker of, or None.
        workers: number of worker processes.
        device: ``cpu`` or ``cuda``.
        retries: restarts of the workers after one dies.
        resources: Ray resources of each worker; empty without a cluster.
        cluster: what was found to place them on.
        notes: one line for each key that is set and does not apply here.
    """

    kind: Literal["local", "ray"]
    why: str
    launcher: str | None
    workers: int
    strategy: Selected
    processor: Selected
    loader: Selected
    device: Device
    retries: int
    resources: Mapping[str, float] = attrs.field(factory=dict)
    cluster: Cluster | None = None
    notes: tuple[str, ...] = ()

    @property
    def in_process(self) -> bool:
        """Whether training needs no worker processes of its own."""
        return self.kind == "local" and self.launcher is None and not is_distributed(self.strategy)


def is_distributed(strategy: Selected) -> bool:
    spec = registry().spec("strategy", strategy.type)
    assert isinstance(spec, StrategySpec)
    return spec.distributed


def place(backend: Backend, *, start: bool = True) -> Placement:
    """Decide, and check the decision against this machine or the cluster.

    Args:
        start: start a Ray cluster where one is needed and there is none; else what it would have is assumed.

    Raises:
        ConfigError: the section asks for what this machine, or this version, cannot give.
        PluginError: a chosen plugin cannot be used.
    """
    launcher = external_launcher()
    kind, why = _kind(backend, launcher)
    if kind == "ray":
        from core.backends.ray.cluster import connect

        placement = _on_cluster(backend, why, connect(may_start=start))
    else:
        placement = _on_this_machine(backend, why, launcher)
    # What is missing is said now, not after preprocessing.
    registry().implementation("processor", placement.processor.type)
    registry().implementation("strategy", placement.strategy.type)
    registry().implementation("loader", placement.loader.type)
    return placement


@attrs.frozen(kw_only=True)
class Prediction:
    """Where a saved model predicts. Its strategy, and that of the section, have no say in it.

    Attributes:
        workers: processes, or actors of a cluster, that share the rows; 1 without a cluster is this process.
        resources, cluster: as those of a `Placement`.
    """

    workers: int
    device: Device
    resources: Mapping[str, float] = attrs.field(factory=dict)
    cluster: Cluster | None = None


def place_prediction(backend: Backend) -> Prediction:
    """Decide, and check the decision against this machine or the cluster.

    Raises:
        ConfigError: the section asks for what this machine, or the cluster, cannot give.
    """
    launcher = external_launcher()
    kind, _ = _kind(backend, launcher)
    if kind == "ray":
        from core.backends.ray.cluster import connect

        cluster = connect()
        workers, resources = _actors(backend, cluster)
        device: Device = "cuda" if resources.get("GPU") else "cpu"
        return Prediction(workers=workers, device=device, resources=resources, cluster=cluster)
    device = _device(backend)
    workers = 1 if launcher is not None else backend.trainer.num_workers or 1
    _check_gpus(workers, device)
    return Prediction(workers=workers, device=device)


def _kind(backend: Backend, launcher: str | None) -> tuple[Literal["local", "ray"], str]:
    if backend.type == "ray":
        if launcher is not None:
            raise ConfigError(
                f"this process is one of a group that {launcher} started, and Ray starts workers of its own",
                path="backend.type",
                found="ray",
                expected="local, or no launcher",
                hint=f"Without {launcher}: core train --config …",
            )
        return "ray", "backend.type"
    if backend.type is not None:
        return "local", "backend.type"
    if launcher is not None:
        return "local", f"started by {launcher}"
    if importlib.util.find_spec("ray") is None:
        return "local", "Ray is not installed"
    if os.environ.get("RAY_ADDRESS") != "local" and in_ray_session():
        return "ray", "this process is connected to a Ray cluster"
    address = ray_address()
    if address is None:
        return "local", "no Ray cluster was found"
    if answers(address):
        return "ray", f"a Ray cluster answers at {address}"
    if os.environ.get("RAY_ADDRESS"):
        log.warning("RAY_ADDRESS names a cluster that does not answer, %s: running on this machine", address)
    return "local", f"no Ray cluster answers at {address}"


def _on_this_machine(backend: Backend, why: str, launcher: str | None) -> Placement:
    device = _device(backend)
    workers, notes = _workers(backend, launcher, device)
    own = backend.type or launcher
    default = own if own in OWN_STRATEGY else "ddp" if workers > 1 else "single"
    strategy = backend.trainer.strategy or _default("strategy", str(default))
    _check_distributed(strategy, workers)
    retries = backend.trainer.max_retries
    return Placement(
        kind="local",
        why=why,
        launcher=launcher,
        workers=workers,
        strategy=strategy,
        processor=backend.processor or _default("processor", "pandas"),
        loader=attrs.evolve(backend.loader, type="memory") if backend.loader.type == "ray" else backend.loader,
        device=device,
        retries=0 if retries is None or launcher else retries,
        notes=tuple(notes + _not_applicable(backend, launcher, strategy)),
    )


def _on_cluster(backend: Backend, why: str, cluster: Cluster) -> Placement:
    workers, resources = _actors(backend, cluster)
    trainer = backend.trainer
    strategy = trainer.strategy or _default("strategy", "ddp")
    _check_distributed(strategy, workers)
    dask = registry().usable("processor", "dask")
    return Placement(
        kind="ray",
        why=why,
        launcher=None,
        workers=workers,
        strategy=strategy,
        processor=backend.processor or _default("processor", "dask" if dask else "pandas"),
        loader=backend.loader,
        device="cuda" if resources.get("GPU") else "cpu",
        retries=RAY_RETRIES if trainer.max_retries is None else trainer.max_retries,
        resources=resources,
        cluster=cluster,
    )


def _actors(backend: Backend, cluster: Cluster) -> tuple[int, dict[str, float]]:
    """How many workers a cluster is asked for, and the resources of each; it has room for them."""
    from core.backends.ray.cluster import check_room

    trainer = backend.trainer
    gpus = int(cluster.total("GPU"))
    use_gpu = gpus > 0 if trainer.use_gpu is None else trainer.use_gpu
    workers = trainer.num_workers or (max(1, gpus) if use_gpu else 1)
    resources = {"CPU": 1.0, **({"GPU": 1.0} if use_gpu else {}), **trainer.resources_per_worker}
    if bool(resources.get("GPU")) != use_gpu:
        raise ConfigError(
            "contradicts `use_gpu`",
            path="backend.trainer.resources_per_worker.GPU",
            found=resources.get("GPU"),
            expected="a number above 0" if use_gpu else "0, or use_gpu: true",
        )
    if not any(resources.values()):
        raise ConfigError(
            "Ray cannot place a worker that needs nothing",
            path="backend.trainer.resources_per_worker",
            found=dict(trainer.resources_per_worker),
            expected="a part of a CPU at least, such as {CPU: 0.1}",
        )
    check_room(cluster, workers, resources)
    return workers, resources


def _check_distributed(strategy: Selected, workers: int) -> None:
    if workers > 1 and not is_distributed(strategy):
        raise ConfigError(
            f"strategy {strategy.type!r} runs in one process",
            path="backend.trainer.strategy",
            found=strategy.type,
            expected=f"a strategy for {workers} workers, such as ddp",
        )


def _default(kind: Literal["processor", "strategy"], name: str) -> Selected:
    try:
        return Selected(type=name, options=registry().spec(kind, name).options())
    except PluginError as error:
        raise PluginError([attrs.evolve(error.problems[0], path="backend.type")]) from None


def _device(backend: Backend) -> Device:
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


def _workers(backend: Backend, launcher: str | None, device: Device) -> tuple[int, list[str]]:
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
    _check_gpus(workers, device)
    return workers, []


def _check_gpus(workers: int, device: Device) -> None:
    import torch

    if device == "cuda" and workers > (gpus := torch.cuda.device_count()):
        raise ConfigError(
            f"each worker needs a GPU of its own and this machine has {gpus}",
            path="backend.trainer.num_workers",
            found=workers,
            expected=f"at most {gpus}, or use_gpu: false",
        )


def _not_applicable(backend: Backend, launcher: str | None, strategy: Selected) -> list[str]:
    """One line for each key that is legal here and has no effect here."""
    trainer = backend.trainer
    notes = []
    if backend.loader.type == "ray":
        notes.append("backend.loader.type does not apply: there is no Ray cluster, and memory gives the same batches")
    if trainer.resources_per_worker:
        notes.append("backend.trainer.resources_per_worker does not apply: it asks a Ray cluster, and this is none")
    if trainer.logdir is not None and not is_distributed(strategy):
        notes.append("backend.trainer.logdir applies to TensorBoard events alone: there are no worker processes to log")
    if trainer.max_retries and launcher is not None:
        notes.append(f"backend.trainer.max_retries does not apply: restarts are the business of {launcher}")
    elif trainer.max_retries and not is_distributed(strategy):
        notes.append("backend.trainer.max_retries does not apply: there are no worker processes to restart")
    return notes
