"""Ring all-reduce training with Horovod."""

from __future__ import annotations

from collections.abc import Iterator

from core import StrategySpec, hookimpl
from core_horovod.options import HorovodOptions

__all__ = ["BUILD_COMMAND", "HorovodOptions", "register_strategy"]

BUILD_COMMAND = "python -m core_horovod.build"


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="horovod",
        summary="A replica of the model on each worker, gradients added up by Horovod while backward runs.",
        implementation="core_horovod.strategy:Horovod",
        options=HorovodOptions,
        exact=True,
        needs=("horovod.torch.mpi_lib_v2",),
        remedy=BUILD_COMMAND,
    )
