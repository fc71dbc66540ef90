"""Gradients of many parameters as one tensor, because an exchange of one number costs what that of thousands costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


class Bucket:
    """Parameters whose gradients travel together.

    Attributes:
        name: the same on all workers.
        owed: how many of the gradients this step's backward has still to complete.
    """

    def __init__(self, name: str, parameters: Sequence[nn.Parameter]) -> None:
        self.name = name
        self.parameters = parameters
        self.owed = 0

    def pack(self) -> Tensor:
        """The gradients, zeros where this worker has none, and for each parameter whether it has one."""
        used = self.parameters[0].new_tensor([parameter.grad is not None for parameter in self.parameters])
        gradients = (
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in self.parameters
        )
        return torch.cat([*(gradient.detach().flatten() for gradient in gradients), used])

    def unpack(self, total: Tensor) -> None:
        """Take the sum over workers. A parameter that no worker used gets no gradient: zeros would decay it."""
        sizes = [*(parameter.numel() for parameter in self.parameters), len(self.parameters)]
        *gradients, used = torch.split(total, sizes)
        for parameter, gradient, workers in zip(self.parameters, gradients, used.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter) if workers else None


def buckets(parameters: Iterable[nn.Parameter], limit: int) -> list[Bucket]:
    """Buckets of one type and up to `limit` bytes each, or of one parameter, in the order in which backward ends."""
    groups: list[list[nn.Parameter]] = []
    room: dict[torch.dtype, tuple[list[nn.Parameter], int]] = {}  # the group being filled, and the bytes in it
    for parameter in reversed(list(parameters)):
        group, size = room.get(parameter.dtype, ([], 0))
        if not group or size + parameter.nbytes > limit:
            group, size = [], 0
            groups.append(group)
        group.append(parameter)
        room[parameter.dtype] = group, size + parameter.nbytes
    return [Bucket(f"core.gradients.{index}", group) for index, group in enumerate(groups)]
