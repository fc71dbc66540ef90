"""Worker 0's object on every worker. Tensors in it travel as tensors: Horovod's own function ends at 2 GB."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor

from core.strategy import Strategy


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Tensor] = []

    def persistent_id(self, part: Any) -> Any:
        if not isinstance(part, Tensor):
            return None
        self.tensors.append(part)
        return part.shape, part.dtype


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Tensor] = []

    def persistent_load(self, described: Any) -> Tensor:
        shape, dtype = described
        self.tensors.append(torch.empty(shape, dtype=dtype))
        return self.tensors[-1]


def broadcast_object(value: Any, strategy: Strategy) -> Any:
    """`value` of worker 0; its tensors lie on the CPU."""
    file = io.BytesIO()
    tensors = []
    if strategy.rank == 0:
        pickler = _Pickler(file)
        pickler.dump(value)
        tensors = pickler.tensors
    content = torch.frombuffer(bytearray(file.getvalue()) or bytearray(1), dtype=torch.uint8)
    size = int(strategy.broadcast(torch.tensor(len(content))))
    if strategy.rank != 0:
        content = torch.empty(size, dtype=torch.uint8)
    content = strategy.broadcast(content)
    if strategy.rank != 0:
        unpickler = _Unpickler(io.BytesIO(content.numpy().tobytes()))
        value = unpickler.load()
        tensors = unpickler.tensors
    for tensor in tensors:
        tensor.copy_(strategy.broadcast(tensor))
    return value
