"""Where a job runs when the config does not say. Nothing is started, and nothing heavy imported, to find out."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

LAUNCHERS = {
    "horovod": ("HOROVOD_RANK", "HOROVOD_SIZE"),
    "torchrun": ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
    "deepspeed": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CROSS_RANK"),
}

PROBE_SECONDS = 1.0


def external_launcher(environment: Mapping[str, str] = os.environ) -> str | None:
    """The launcher that started this process as one of a group: `torchrun`, `deepspeed`, `horovod`, or None.

    A launcher is known by the variables it sets; MASTER_ADDR with RANK and WORLD_SIZE is what they all share.
    """
    for name, variables in LAUNCHERS.items():
        if all(variable in environment for variable in variables):
            return name
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        return "torchrun"
    return None


def is_coordinator(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process does what is done once: it was started alone, or is the first of a launcher's group."""
    if external_launcher(environment) is None:
        return True
    return int(environment.get("HOROVOD_RANK") or environment["RANK"]) == 0


def in_ray_session() -> bool:
    """Whether this process is connected to a Ray cluster already."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def ray_address(environment: Mapping[str, str] = os.environ) -> str | None:
    """Where a Ray cluster should be: what RAY_ADDRESS says, else what `ray start` left on this machine, else None.

    As with Ray itself, ``RAY_ADDRESS=local`` says that there is none to join. Nobody has tried the address yet: a
    cluster that died leaves its own behind.
    """
    address = environment.get("RAY_ADDRESS", "").strip()
    if address == "local":
        return None
    if address and address != "auto":
        return address
    folder = environment.get("RAY_TMPDIR") or tempfile.gettempdir()
    try:
        return Path(folder, "ray", "ray_current_cluster").read_text().strip() or None
    except OSError:
        return None


def answers(address: str) -> bool:
    """Whether something listens at a Ray address, ``host:port`` or ``ray://host:port``.

    Ray itself waits for minutes where nothing does.
    """
    host, _, port = address.removeprefix("ray://").partition("/")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS):
            return True
    except (OSError, ValueError):
        return False
