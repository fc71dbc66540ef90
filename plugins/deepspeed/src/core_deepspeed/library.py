"""DeepSpeed itself, imported without its messages and told to compile nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from unittest import mock

import torch


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Let an optional import of `module` fail."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
# Its autotuner, for which core has no use, imports mlflow where that is installed: five seconds.
with warnings.catch_warnings(), _without("mlflow"):
    warnings.simplefilter("ignore")
    import deepspeed
    import deepspeed.ops
    from deepspeed.accelerator import get_accelerator, set_accelerator
# It asks whether an optimiser is Muon, whose module has functions compiled: three seconds to import torch's compiler.
with mock.patch("deepspeed.runtime.compiler.compile", return_value=lambda function: function):
    import deepspeed.runtime.zero.muon.muon_optimizer

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
