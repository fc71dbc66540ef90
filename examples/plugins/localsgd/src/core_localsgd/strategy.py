"""Local SGD (Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019) as a strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from core.strategy import MakeOptimizer, TorchGroup
from core_localsgd.options import LocalSGDOptions

BUCKET_BYTES = 25 << 20


class LocalSGD(TorchGroup):
    """Every worker updates its own weights with the gradients of its own rows; every `period` steps all are averaged.

    Workers are brought together too before anything is measured or saved: there is one model at each of these moments,
    and a run that goes on from a checkpoint takes the steps that it would have taken.

    Attributes:
        exchanged_bytes: handed to the other workers so far, but for the sums that the training loop asks for.
    """

    options: LocalSGDOptions

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> nn.Module:
        for tensor in model.state_dict().values():
            self.broadcast(tensor)
        self.exchanged_bytes = 0
        self._apart = 0
        wrapped = super().prepare(_Together(model, self.average), make_optimizer)
        self.module = model
        return wrapped

    def step(self, max_norm: float | None = None) -> Tensor | None:
        if self.options.period == 1:
            self._average([p.grad for p in self.module.parameters() if p.grad is not None])
            return self.update(max_norm)
        norm = self.update(max_norm)
        self._apart += 1
        if self._apart == self.options.period:
            self.average()
        return norm

    def average(self) -> None:
        """Bring the workers together, if they have taken steps apart. Every worker must call it."""
        if not self._apart:
            return
        self._apart = 0
        tensors = [*self.module.parameters(), *self.module.buffers()]
        if self.options.average_optimizer:
            tensors += [value for entry in self._entries() for value in entry.values() if isinstance(value, Tensor)]
        self._average([tensor.detach() for tensor in tensors if tensor.is_floating_point()])

    def state(self) -> dict[str, Any]:
        self.average()
        return super().state()

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._apart = 0

    def _entries(self) -> Iterator[dict[str, Any]]:
        """What the optimiser keeps of each parameter, in the same order on every worker."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                yield self.optimizer.state.get(parameter, {})

    def _average(self, tensors: Sequence[Tensor]) -> None:
        for bucket in _buckets(tensors):
            flat = self.sum(torch.cat([tensor.flatten() for tensor in bucket])).div_(self.world_size)
            self.exchanged_bytes += flat.nbytes
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view_as(tensor))


class _Together(nn.Module):
    """The model, that lets workers come together before it is measured."""

    def __init__(self, module: nn.Module, average: Any) -> None:
        super().__init__()
        self.module = module
        self._average = average

    def forward(self, *arguments: Any, **options: Any) -> Any:
        return self.module(*arguments, **options)

    def train(self, mode: bool = True) -> _Together:
        if not mode and self.training:
            self._average()
        return super().train(mode)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Of one type and about `BUCKET_BYTES` each."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or sum(t.nbytes for t in bucket) > BUCKET_BYTES):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
