"""A data-parallel strategy as short as one can be, with one fault: the conformance kit must tell which."""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta

import attrs
import torch
import torch.distributed as group
from torch import nn

from core import GroupOptions
from core.strategy import Strategy, group_store


@attrs.frozen(kw_only=True)
class FaultyOptions(GroupOptions):
    fault: str = attrs.field(default="", metadata={"doc": "What is wrong; nothing by default."})


class Faulty(Strategy):
    def start(self):
        seconds = 3600 if self.options.fault == "waits for ever" else self.options.timeout_s
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        group.init_process_group(
            "gloo",
            store=group_store(seconds),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timedelta(seconds=seconds),
        )

    def stop(self):
        if group.is_initialized():
            group.destroy_process_group()

    def prepare(self, model, make_optimizer):
        if self.options.fault == "unties parameters" and hasattr(model, "second"):
            model.second.weight = nn.Parameter(model.first.weight.detach().clone())
        if self.options.fault == "lets all parameters learn":
            model.requires_grad_(True)
        super().prepare(model, make_optimizer)
        self.kept = [parameter.detach().clone() for parameter in model.parameters()]
        return model

    @contextlib.contextmanager
    def microbatch(self, *, last):
        yield
        if self.options.fault == "keeps the last micro-batch alone" and not last:
            self.optimizer.zero_grad()
        if self.options.fault == "exchanges each micro-batch":
            self.exchange()

    def step(self, max_norm=None):
        fault = self.options.fault
        norm = None
        if fault == "clips before the exchange" and max_norm:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
            max_norm = None
        if fault not in ("does not exchange", "exchanges each micro-batch"):
            self.exchange()
        if fault == "exchanges once more on worker 0" and self.rank == 0:
            group.all_reduce(torch.zeros(()))
        if fault == "keeps its own rate":
            self.optimizer.param_groups[0]["lr"] = 0.1
        updated = self.update(max_norm)
        return updated if norm is None else norm

    def exchange(self):
        for parameter in self.model.parameters():
            if parameter.grad is None and self.options.fault == "gives every parameter a gradient":
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None:
                group.all_reduce(parameter.grad)
                if self.options.fault == "averages":
                    parameter.grad /= self.world_size

    def sum(self, tensor):
        if self.options.fault == "sums as floats":
            exact, tensor = tensor, tensor.float()
            group.all_reduce(tensor)
            return tensor.to(exact.dtype)
        group.all_reduce(tensor)
        return tensor // self.world_size if self.options.fault == "averages sums" else tensor

    def broadcast(self, tensor):
        group.broadcast(tensor, src=self.world_size - 1 if self.options.fault == "sends the last worker's" else 0)
        return tensor

    def state(self):
        state, fault = super().state(), self.options.fault
        entries = state["optimizer"]["state"]
        if fault == "numbers the optimiser's state":
            state["optimizer"]["state"] = dict(enumerate(entries.values()))
        if fault == "forgets the optimiser's state":
            entries.clear()
        if fault == "shows live weights":
            state["model"] = self.module.state_dict()
        if fault == "keeps a shard":
            state["model"] = {name: tensor[: len(tensor) // 2] for name, tensor in state["model"].items()}
        return state

    def load(self, state):
        if self.options.fault == "loads on worker 0 alone":
            return super().load(state) if self.rank == 0 else None
        shared = [state]
        group.broadcast_object_list(shared, src=0)
        super().load(shared[0])
        if self.options.fault == "forgets the optimiser on load":
            self.optimizer.state.clear()
        return None
