"""torch's FSDP2 as a strategy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from core.errors import ConfigError
from core.strategy import MakeOptimizer, TorchGroup
from core_fsdp.blocks import blocks
from core_fsdp.options import FSDPOptions


class FSDP(TorchGroup):
    """A shard of each parameter on each worker. Names and the network's own class stay as they are."""

    options: FSDPOptions
    mesh: DeviceMesh

    @property
    def collectives(self) -> str:
        if self.options.cpu_offload and self.device.type == "cuda":
            return "cpu:gloo,cuda:nccl"  # shards lie on the CPU, and the norm of their gradients is summed there
        return super().collectives

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> nn.Module:
        self.mesh = init_device_mesh(self.device.type, (self.world_size,))
        types: dict[str, Any] = {
            name: None if value is None else getattr(torch, value)
            for name, value in attrs.asdict(self.options.mixed_precision).items()
        }
        arguments: dict[str, Any] = {
            "mesh": self.mesh,
            "reshard_after_forward": self._reshard_after_forward(),
            "offload_policy": CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
            if self.options.cpu_offload
            else OffloadPolicy(),
        }
        for block in blocks(model, self.options):
            fully_shard(block, mp_policy=MixedPrecisionPolicy(**{**types, "output_dtype": None}), **arguments)
        fully_shard(model, mp_policy=MixedPrecisionPolicy(**types), **arguments)
        super().prepare(_Trainable(model), make_optimizer)
        self.module = model
        if not isinstance(self.optimizer, torch.optim.Adam):
            for group in self.optimizer.param_groups:
                group["fused"] = False  # of the fused kernels, Adam's alone know sharded tensors
        return self.model

    def _reshard_after_forward(self) -> bool | int | None:
        wanted = self.options.reshard_after_forward
        if isinstance(wanted, bool) or wanted is None:
            return wanted
        if wanted >= self.world_size or self.world_size % wanted:
            raise ConfigError(
                "a block cannot be kept spread over this many workers",
                path="backend.trainer.strategy.reshard_after_forward",
                found=wanted,
                expected=f"true, false, null or a divisor of the {self.world_size} workers, less than all of them",
            )
        return wanted

    def microbatch(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert isinstance(self.module, FSDPModule)
        self.module.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def update(self, max_norm: float | None = None) -> Tensor | None:
        norm = super().update(max_norm)
        # Statistics of batches are each worker's own; evaluation needs the same everywhere, and a model has rank 0's.
        for buffer in self.module.buffers():
            self.broadcast(buffer)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def state(self) -> dict[str, Any]:
        """As `Strategy.state`; one parameter at a time is whole, and rank 0 alone keeps it."""
        weights = self._gathered(self.module.state_dict())  # taking it gives back whatever is gathered
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.module.named_parameters()}
        kept = {names[parameter]: self._gathered(entry) for parameter, entry in self.optimizer.state.items()}
        groups = [
            {**group, "params": [names[parameter] for parameter in group["params"]]}
            for group in self.optimizer.param_groups
        ]
        return {"model": weights, "optimizer": {"state": kept, "param_groups": groups}}

    def _gathered(self, values: dict[str, Any]) -> dict[str, Any]:
        whole = {}
        for name, value in values.items():
            gathered = value.full_tensor() if isinstance(value, DTensor) else value
            if self.rank == 0:
                whole[name] = gathered.detach().to("cpu", copy=True) if isinstance(gathered, Tensor) else gathered
        return whole

    def load(self, state: dict[str, Any]) -> None:
        for name, target in self.module.state_dict().items():
            target.copy_(self._spread(state["model"].get(name), target, target.dtype))
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        saved = state["optimizer"].get("state", {})
        # What has the shape of its parameter is sharded like it, so its type is all that the others must know of it.
        shapes = {name: parameter.shape for parameter, name in names.items()}
        known = [
            {
                name: {
                    key: value.dtype if isinstance(value, Tensor) and value.shape == shapes[name] else value
                    for key, value in entry.items()
                }
                for name, entry in saved.items()
            }
        ]
        torch.distributed.broadcast_object_list(known, src=0, device=self.device)
        by_position = {
            position: {
                key: self._spread(saved.get(name, {}).get(key), parameter, value)
                if isinstance(value, torch.dtype)
                else value
                for key, value in known[0][name].items()
            }
            for position, parameter in enumerate(parameters)
            if (name := names[parameter]) in known[0]
        }
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": by_position})

    def _spread(self, whole: Tensor | None, like: Tensor, dtype: torch.dtype) -> Tensor:
        """Rank 0's tensor, which is None elsewhere: sharded as `like` is, or whole on every worker."""
        if whole is None:
            whole = torch.empty(like.shape, dtype=dtype)
        whole = whole.to(self.device, dtype)
        if isinstance(like, DTensor):
            return distribute_tensor(whole, self.mesh, like.placements)
        return self.broadcast(whole)


class _Trainable(nn.Module):
    """A sharded network, to be used like any other by a training loop."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """The shards, which are what learns, even where forward has left a block gathered."""
        for module in self.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        return super().named_parameters(*args, **kwargs)

    def forward(self, columns: dict[str, Tensor]) -> Any:
        # FSDP keeps the tensors it gathers into, and those made in inference mode could never be trained again.
        if not torch.is_inference_mode_enabled():
            return self.module(columns)
        with torch.inference_mode(False), torch.no_grad():
            return self.module(columns)
