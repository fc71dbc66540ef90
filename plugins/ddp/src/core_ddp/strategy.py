"""torch's DistributedDataParallel as a strategy."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from core.strategy import MakeOptimizer, TorchGroup
from core_ddp.options import DDPOptions


class DDP(TorchGroup):
    """A replica of the model on each worker."""

    options: DDPOptions
    model: DistributedDataParallel

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> nn.Module:
        device_ids = [self.device] if self.device.type == "cuda" else None
        arguments = attrs.asdict(self.options, filter=lambda field, _: field.name != "timeout_s")
        replica = DistributedDataParallel(model, device_ids=device_ids, **arguments)
        super().prepare(replica, make_optimizer)
        self.module = model
        self._graph_to_learn = self.options.static_graph
        return replica

    def microbatch(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        # torch learns a static graph from its first backward, which must reduce. That changes no gradient: what was
        # averaged is equal on all workers, and averaging it again with the parts that follow leaves it so.
        reduces = last or self._graph_to_learn
        self._graph_to_learn = False
        return contextlib.nullcontext() if reduces else self.model.no_sync()

    def stop(self) -> None:
        # The replica's reducer holds the process group. Were it the last to let go, it would wait for gloo's thread
        # while it holds the interpreter lock that this thread needs to free its tensors, and the worker would hang.
        if hasattr(self, "model"):
            for holder in ("logger", "reducer", "process_group"):
                vars(self.model).pop(holder, None)
        super().stop()
