"""The state of training, gathered from the workers and spread over them again, one tensor at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from core_deepspeed.fragments import Fragment, fragments, whole_shape
from core_deepspeed.library import deepspeed

State = dict[str, dict[str, Any]]
"""What an optimiser keeps of each parameter, by name."""


def gather(engine: Any, module: nn.Module) -> tuple[dict[str, Tensor], State]:
    """Weights and buffers, and the optimiser's state: whole and on the CPU on rank 0, empty on the others."""
    parts = fragments(engine.optimizer, module)
    names = _names(module)
    weights: dict[str, Tensor] = {}
    state: State = {}
    for key, tensor in module.state_dict(keep_vars=True).items():
        part = parts.get(names.get(tensor, ""))
        weights[key] = _unsharded(tensor) if part is None else _whole(engine, part, part.flat, whole_shape(tensor))
    for parameter, name in names.items():
        if (part := parts.get(name)) is None:
            continue
        entry = engine.optimizer.optimizer.state.get(part.flat, {})
        if entry:
            state[name] = {
                key: _whole(engine, part, value, whole_shape(parameter))
                if _elementwise(value, part)
                else _constant(value)
                for key, value in entry.items()
            }
    return (weights, state) if dist.get_rank() == 0 else ({}, {})


def scatter(engine: Any, module: nn.Module, weights: dict[str, Tensor], state: State) -> None:
    """Restore what `gather` returned, or any other strategy's state. Only rank 0's arguments are read."""
    parts = fragments(engine.optimizer, module)
    names = _names(module)
    shared = [{name: {key: _described(value) for key, value in entry.items()} for name, entry in state.items()}]
    dist.broadcast_object_list(shared, src=0)
    for key, tensor in module.state_dict(keep_vars=True).items():
        part = parts.get(names.get(tensor, ""))
        dtype = tensor.dtype if part is None else part.flat.dtype
        whole = _broadcast(weights.get(key), whole_shape(tensor), dtype, engine.device)
        _assign(tensor, whole)
        if part is not None:
            part.of(part.flat.data).copy_(part.cut(whole))
    entries: dict[Tensor, dict[str, Any]] = {}
    for parameter, name in names.items():
        for key, value in shared[0].get(name, {}).items():
            part = parts[name]
            entry = entries.setdefault(part.flat, {})
            if isinstance(value, torch.dtype):
                whole = _broadcast(state.get(name, {}).get(key), whole_shape(parameter), value, engine.device)
                part.of(entry.setdefault(key, torch.zeros_like(part.flat.data))).copy_(part.cut(whole))
            else:
                entry[key] = value
    optimizer = engine.optimizer.optimizer
    for flat, entry in entries.items():
        optimizer.state[flat] = {key: _placed(value, flat, optimizer) for key, value in entry.items()}


def _names(module: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in module.named_parameters()}


def _elementwise(value: Any, part: Fragment) -> bool:
    """Whether a value is one number for each element, and not one for all, such as the count of steps."""
    return isinstance(value, Tensor) and value.shape == part.flat.shape


def _whole(engine: Any, part: Fragment, tensor: Tensor, shape: torch.Size) -> Tensor:
    """A parameter, or what is kept of it, from every worker's part; complete on rank 0."""
    whole = torch.zeros(shape, dtype=tensor.dtype, device=engine.device)
    part.cut(whole).copy_(part.of(tensor))
    dist.reduce(whole, dst=0)
    return _kept(whole)


def _unsharded(tensor: Tensor) -> Tensor:
    """What does not learn: a buffer, or a frozen parameter, which stage 3 divides too."""
    if not hasattr(tensor, "ds_id"):
        return _kept(tensor)
    with deepspeed.zero.GatheredParameters([tensor]):
        return _kept(tensor)


def _kept(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _constant(value: Any) -> Any:
    return _kept(value) if isinstance(value, Tensor) else value


def _described(value: Any) -> Any:
    """The type of what travels on its own; anything small as it is."""
    return value.dtype if isinstance(value, Tensor) and value.ndim else value


def _broadcast(tensor: Tensor | None, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rank 0's tensor; the others give None."""
    whole = torch.empty(shape, dtype=dtype, device=device)
    if tensor is not None:
        whole.copy_(tensor)
    carried = whole.to(torch.uint8) if dtype == torch.bool else whole
    dist.broadcast(carried, src=0)
    return carried.to(dtype)


def _assign(tensor: Tensor, whole: Tensor) -> None:
    if not hasattr(tensor, "ds_id"):
        tensor.data.copy_(whole)
        return
    with deepspeed.zero.GatheredParameters([tensor], modifier_rank=0):
        tensor.data.copy_(whole)


def _placed(value: Any, flat: Tensor, optimizer: torch.optim.Optimizer) -> Any:
    """A count of steps lies with the weights where one kernel updates all of them, else on the CPU."""
    if not isinstance(value, Tensor) or value.ndim:
        return value
    group = optimizer.param_groups[0]
    return value.to(flat.device if group.get("fused") or group.get("capturable") else "cpu", copy=True)
