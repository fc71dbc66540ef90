"""Where a job runs when the config does not say. Nothing is started, and nothing heavy imported, to find out."""

from __future__ import annotations

import os
from collections.abc import Mapping

LAUNCHERS = {
    "horovod": ("HOROVOD_RANK", "HOROVOD_SIZE"),
    "torchrun": ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
    "deepspeed": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CROSS_RANK"),
}


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
