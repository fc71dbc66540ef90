"""The Ray cluster of a job: the one this process belongs to, one that can be reached, or one started here."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from core.backends.detect import answers, in_ray_session, ray_address
from core.errors import ConfigError, PluginError, UserError, WorkerFailed

log = logging.getLogger("core")

SETTINGS = {
    # The newer reader starts 32 actors for each read, which takes longer than reading most datasets.
    "RAY_DATA_USE_DATASOURCE_V2": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prints on stdout that a worker died, whatever `log_to_driver` says; the job tells why it did.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Environment of everything Ray starts for a job; what the user has set stays."""

WAIT_LINE_SECONDS = 2.0
LOST_SECONDS = 60.0
"""How long a retry waits for a lost node to come back, or for another in its place."""

Resources = Mapping[str, float]


@attrs.frozen(kw_only=True)
class Cluster:
    """What a cluster has.

    Attributes:
        address: where it was reached; None for one of this process's own.
        nodes: the resources of each node.
        expected: what an autoscaling cluster may grow to; None where it stays as it is.
        running: False for one that is yet to be started.
    """

    address: str | None
    nodes: Sequence[Resources]
    expected: Resources | None = None
    running: bool = True

    def total(self, resource: str) -> float:
        """Of all nodes, or of what the cluster may grow to."""
        if self.expected is not None:
            return float(self.expected.get(resource, 0))
        return float(sum(node.get(resource, 0) for node in self.nodes))

    def room(self, resources: Resources) -> int:
        """How many workers of these resources find a place, if nothing else runs."""
        needed = {name: amount for name, amount in resources.items() if amount > 0}
        if self.expected is not None:
            return min(int(self.expected.get(name, 0) / amount) for name, amount in needed.items())
        return sum(
            min(int(node.get(name, 0) / amount + 1e-9) for name, amount in needed.items()) for node in self.nodes
        )

    def __str__(self) -> str:
        where = f"the Ray cluster at {self.address}" if self.address else "the Ray cluster of this machine"
        each = [", ".join(f"{value:g} {name}" for name, value in _named(node).items()) for node in self.nodes]
        return f"{where}, {len(each)} node{'s' * (len(each) != 1)} with {'; '.join(each) or 'nothing'}"


def spilling(cluster: Cluster, size: int) -> str | None:
    """A line for people, where `size` bytes in the object store of a node are more than it holds."""
    least = min((node.get("object_store_memory", math.inf) for node in cluster.nodes), default=math.inf)
    if size <= least:
        return None
    wanted, room = (f"{value / 1e9:.2g} GB" for value in (size, least))
    return (
        f"loader: {wanted} of processed data do not fit an object store of {room}: Ray spills the rest to disk and "
        "reads it again, which is slow; fully_executed: false with window_size_bytes is not"
    )


def _named(resources: Resources) -> dict[str, float]:
    """Without what Ray adds to every node by itself, and memory, which is counted in bytes."""
    own = ("node:", "memory", "object_store_memory", "accelerator_type:")
    return {name: value for name, value in sorted(resources.items()) if not name.startswith(own)}


def require_ray() -> None:
    """Say how to install Ray where it is not.

    Raises:
        PluginError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise PluginError("Ray is not installed", path="backend.type", found="ray", hint="pip install 'core[ray]'")


def here() -> Cluster:
    """What a cluster started on this machine would have. Starts nothing."""
    import torch

    gpus = torch.cuda.device_count()
    node = {"CPU": float(os.cpu_count() or 1), **({"GPU": float(gpus)} if gpus else {})}
    return Cluster(address=None, nodes=[node], running=False)


def connect(*, may_start: bool = True) -> Cluster:
    """Join the cluster that is there, or start one on this machine.

    Raises:
        PluginError: Ray is not installed.
        UserError: RAY_ADDRESS names a cluster that does not answer or does not let us in.
    """
    require_ray()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if in_ray_session():
        return _described(None)
    address = ray_address()
    asked = os.environ.get("RAY_ADDRESS", "").strip()
    if address is not None and not answers(address):
        if asked and asked != "auto":
            raise _unreachable(address, "nothing answers there")
        log.info("a Ray cluster was started on this machine before, at %s, and answers no more", address)
        address = None
    if address is None and asked == "auto":
        raise _unreachable("auto", "no cluster runs on this machine")
    if address is None and not may_start:
        return here()
    _init(address)
    return _described(address)


def _init(address: str | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        log.info("starting a Ray cluster on this machine")
        quiet |= {"include_dashboard": False}
    try:
        ray.init(address=address or "local", **quiet)
    except Exception as error:  # Ray's errors of connecting have no common base
        if address is None:
            raise UserError(
                f"Ray did not start on this machine: {_first_line(error)}",
                path="backend.type",
                found="ray",
                hint="type: local runs the same job without Ray.",
            ) from error
        raise _unreachable(address, _first_line(error)) from error


def _unreachable(address: str, reason: str) -> UserError:
    return UserError(
        f"cannot join the Ray cluster: {reason}",
        path="RAY_ADDRESS",
        found=address,
        expected="the address of a running cluster, host:port or ray://host:port",
        hint="Start one with `ray start --head`, or unset RAY_ADDRESS to run on this machine.",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _described(address: str | None) -> Cluster:
    import ray
    from ray._private.state import state  # what Ray Train itself asks before it waits for workers

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    expected = None if ray.util.client.ray.is_connected() else state.get_max_resources_from_cluster_config()
    return Cluster(address=address, nodes=nodes, expected=expected or None)


def check_room(cluster: Cluster, workers: int, resources: Resources) -> None:
    """Refuse what the cluster can never place.

    Raises:
        ConfigError: with what the cluster has.
    """
    room = cluster.room(resources)
    if room >= workers:
        return
    asked = ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount)
    missing = [name for name, amount in resources.items() if amount > 0 and cluster.total(name) < amount]
    path = f"backend.trainer.resources_per_worker.{missing[0]}" if missing else "backend.trainer.num_workers"
    if missing == ["GPU"]:
        path = "backend.trainer.use_gpu"
    raise ConfigError(
        f"{workers} worker{'s' * (workers != 1)} with {asked} each find no place in {cluster}",
        path=path,
        found=resources[missing[0]] if missing else workers,
        expected=f"at most {room} workers of this size" if room else "no more than a node has",
        hint="" if missing else "A fraction such as resources_per_worker: {CPU: 0.5} lets workers share a CPU.",
    )


def wait_for_room(workers: int, resources: Resources) -> None:
    """Wait for nodes that a retry needs and that were lost, and say what else a job waits for.

    What others hold is free when they are done: Ray queues the job for it.

    Raises:
        WorkerFailed: too few nodes are left, and none came back.
    """
    import ray

    deadline = time.monotonic() + LOST_SECONDS
    while (cluster := _described(None)).room(resources) < workers:
        if time.monotonic() > deadline:
            raise WorkerFailed(
                f"{workers} workers find no place any more in {cluster}",
                path="backend.trainer.num_workers",
                found=workers,
                expected=f"at most {cluster.room(resources)}, unless nodes are added",
            )
        time.sleep(1)
    deadline = time.monotonic() + WAIT_LINE_SECONDS
    while True:
        free = ray.available_resources()
        short = {name: need * workers for name, need in resources.items() if free.get(name, 0) < need * workers}
        if not short:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    held = ", ".join(f"{free.get(name, 0):g} of {need:g} {name}" for name, need in short.items())
    log.info("waiting for room on the Ray cluster: it has %s free, others hold the rest", held)
