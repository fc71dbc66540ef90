"""The contract of a training strategy, and the strategy of a single process.

A strategy owns the process group and how gradients travel. Launching the processes is the backend's job, and the
training loop is the same for every strategy::

    strategy.start()
    model = strategy.prepare(model, make_optimizer)
    for part in parts:
        with strategy.microbatch(last=part is parts[-1]):
            strategy.backward(loss(model, part))
    strategy.step(max_norm)
    strategy.stop()

A loss is a sum over this worker's rows divided by the rows of the whole step on every worker, so gradients add up
to the same number however rows are spread.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # exported without `__all__`
from torch.distributed.rendezvous import rendezvous

from core.specs import GroupOptions, StrategyOptions

if TYPE_CHECKING:
    from core.config.sections import Trainer
    from core.training.batching import Batching

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Strategy:
    """One process, one device. A plugin overrides what its framework does differently.

    Attributes:
        device: where the model and its batches live; set by whoever launches the process.
        rank, world_size: this worker and their number; known after `start`.
        model, optimizer: as wrapped by `prepare`. The loop sets the learning rate in `optimizer.param_groups`.
        module: the network inside `model`, whose parameter names are those of a checkpoint.
    """

    rank: int = 0
    world_size: int = 1
    model: nn.Module
    module: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, options: StrategyOptions, device: torch.device) -> None:
        self.options = options
        self.device = device

    @classmethod
    def check(cls, options: Any, trainer: Trainer, cut: Batching, world_size: int, device: str) -> None:
        """Refuse what this strategy cannot do with these sections of a config, before any data is read.

        `cut` is how the rows of a step are cut, `device` is ``cpu`` or ``cuda``.

        Raises:
            ConfigError: with paths under ``backend.trainer.strategy``.
        """

    def start(self) -> None:
        """Join the group named by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

    def stop(self) -> None:
        """Leave the group. Does not raise if `start` failed or was not called."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> nn.Module:
        """Wrap the model, which lies on `device`, then make its optimiser: sharding replaces parameters."""
        self.model = self.module = model
        self.optimizer = make_optimizer(model.parameters())
        return self.model

    def microbatch(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Goes around forward and backward: DDP decides at forward whether this backward will reduce."""
        return contextlib.nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of this worker's part of the loss, a scalar."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, max_norm: float | None = None) -> Tensor | None:
        """Complete the exchange of gradients where `backward` has not, then `update`."""
        return self.update(max_norm)

    def update(self, max_norm: float | None = None) -> Tensor | None:
        """Clip by global norm, update, and clear the gradients, which are complete: nothing is exchanged any more.

        Returns the norm before clipping, if one was asked. Exact mode calls it alone, with gradients it has summed.
        """
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm) if max_norm else None
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of `tensor` over workers, on every worker. May work in place."""
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Worker 0's `tensor` on every worker; shapes and dtypes are equal. May work in place."""
        return tensor

    def state(self) -> dict[str, Any]:
        """``{"model": {name: tensor}, "optimizer": {...}}``: unsharded, on CPU, keyed by parameter name.

        Complete on rank 0; other ranks may get empty mappings. Every rank must call it.
        """
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.module.named_parameters()}
        optimizer_state = {
            names[parameter]: {key: _on_cpu(value) for key, value in entry.items()}
            for parameter, entry in self.optimizer.state.items()
        }
        groups = [
            {**group, "params": [names[parameter] for parameter in group["params"]]}
            for group in self.optimizer.param_groups
        ]
        return {
            "model": {name: _on_cpu(value) for name, value in self.module.state_dict().items()},
            "optimizer": {"state": optimizer_state, "param_groups": groups},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what any strategy's `state` returned. Only rank 0's argument is read; every rank must call it."""
        self.module.load_state_dict(state["model"])
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        saved = state["optimizer"]["state"]
        by_position = {
            position: saved[names[parameter]]
            for position, parameter in enumerate(parameters)
            if names[parameter] in saved
        }
        # Hyperparameters are the config's: only what was learnt of each parameter comes from the checkpoint. A copy of
        # it, because an optimiser goes on to change the tensors it was given.
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": copy.deepcopy(by_position)})


def _on_cpu(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def group_store(timeout_s: float) -> Store:
    """A key-value store of the group that is about to form, at MASTER_ADDR and MASTER_PORT; RANK 0's may serve it.

    The store of a launcher outlives a group, and what an earlier one left in it would mislead the next. So each group
    that the same processes form there, one after the other, has keys of its own.
    """
    address = tuple(os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"))
    timeout = timedelta(seconds=timeout_s)
    if address not in _stores:
        _stores.clear()
        store, _, _ = next(rendezvous("env://", timeout=timeout))
        _stores[address] = store, itertools.count()
    store, numbers = _stores[address]
    store.set_timeout(timeout)
    return PrefixStore(f"core-{next(numbers)}", store)


_stores: dict[tuple[str, ...], tuple[Store, Iterator[int]]] = {}
"""That of the address at which this process met others last, and the numbers of the groups there."""


class TorchGroup(Strategy):
    """What strategies on a torch process group share."""

    options: GroupOptions

    @property
    def collectives(self) -> str:
        """Torch's name of the library that exchanges tensors."""
        return "nccl" if self.device.type == "cuda" else "gloo"

    def start(self) -> None:
        distributed = torch.distributed
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # torch sends objects from the current one, and shards lie on it
        if not distributed.is_initialized():
            distributed.init_process_group(
                self.collectives,
                store=group_store(self.options.timeout_s),
                rank=int(os.environ["RANK"]),
                world_size=int(os.environ["WORLD_SIZE"]),
                timeout=timedelta(seconds=self.options.timeout_s),
            )
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()

    def stop(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def backward(self, loss: Tensor) -> None:
        super().backward(loss * self.world_size)  # the wrapper averages over workers what should be a sum

    def sum(self, tensor: Tensor) -> Tensor:
        torch.distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        torch.distributed.broadcast(tensor, src=0)
        return tensor

    def load(self, state: dict[str, Any]) -> None:
        shared = [state]
        torch.distributed.broadcast_object_list(shared, src=0)
        super().load(shared[0])
