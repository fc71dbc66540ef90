"""DeepSpeed itself, imported without its messages and told to compile nothing."""

from __future__ import annotations

import logging
import os
import warnings

import torch

os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import deepspeed
    import deepspeed.ops
    from deepspeed.accelerator import get_accelerator, set_accelerator

logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
# Its own exchange between workers of one machine would be compiled at the first use; gloo does the same.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

__all__ = ["deepspeed", "get_accelerator", "use_device"]


def use_device(kind: str) -> None:
    """Compute on ``cpu`` or ``cuda``, whatever there is on this machine."""
    if get_accelerator().device_name() == kind:
        return
    if kind == "cpu":
        from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator as Accelerator
    else:
        from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator as Accelerator
    set_accelerator(Accelerator())
