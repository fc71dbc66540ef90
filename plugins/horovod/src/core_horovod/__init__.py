"""Ring all-reduce training with Horovod."""

from __future__ import annotations

from collections.abc import Iterator

from core import StrategySpec, hookimpl
from core_horovod.build import COMMAND
from core_horovod.options import HorovodOptions

__all__ = ["HorovodOptions", "register_strategy"]


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="horovod",
        summary="A replica of the model on each worker, gradients added up by Horovod while backward runs.",
        implementation="core_horovod.strategy:Horovod",
        options=HorovodOptions,
        exact=True,
        needs=("horovod.torch.mpi_lib_v2",),
        remedy=COMMAND,
    )
