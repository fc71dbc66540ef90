"""Where DeepSpeed keeps a worker's part of each parameter, and of its optimiser state.

ZeRO lays the 32-bit weights that it updates end to end in flat tensors and cuts these into one part a worker; the
optimiser's state lies beside them in tensors of the same shape. DeepSpeed's own access (`safe_set_full_fp32_param` and
the like) cannot write parameters that the number of workers does not divide, nor what counts steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import torch
from torch import Tensor, nn


@attrs.frozen(kw_only=True, eq=False)
class Fragment:
    """This worker's part of a parameter: `numel` elements from `start` on, at `offset` in `flat`; there may be none."""

    flat: Tensor
    offset: int
    start: int
    numel: int

    def of(self, tensor: Tensor) -> Tensor:
        """The part of `tensor`, which is shaped like `flat`, that belongs to the parameter."""
        return tensor.view(-1).narrow(0, self.offset, self.numel)

    def cut(self, parameter: Tensor) -> Tensor:
        """The part of a whole parameter that is this worker's."""
        return parameter.reshape(-1).narrow(0, self.start, self.numel)


def fragments(zero: Any, module: nn.Module) -> dict[str, Fragment]:
    """Of each parameter that learns, by name; `zero` is the engine's optimiser."""
    found = dict(_fragments(zero))
    return {name: found[parameter] for name, parameter in module.named_parameters() if parameter in found}


def whole_shape(parameter: Tensor) -> torch.Size:
    """A parameter's shape, wherever its elements are."""
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def _fragments(zero: Any) -> Iterator[tuple[Tensor, Fragment]]:
    if hasattr(zero, "fp32_partitioned_groups_flat"):  # stage 3
        for parameter in (parameter for group in zero.fp16_groups for parameter in group):
            group, offset, size = zero.grad_position[zero.get_param_id(parameter)]
            start = size * torch.distributed.get_rank(parameter.ds_process_group)
            numel = max(0, min(size, parameter.ds_numel - start))  # the last parts are filled up
            flat = zero.fp32_partitioned_groups_flat[group]
            yield parameter, Fragment(flat=flat, offset=offset, start=min(start, parameter.ds_numel), numel=numel)
        return
    if hasattr(zero, "single_partition_of_fp32_groups"):  # stages 1 and 2
        groups, flats = zero.bit16_groups, zero.single_partition_of_fp32_groups
    else:  # stage 1 with bfloat16 weights and gradients added up in 32 bits
        groups, flats = zero.bf16_groups, zero.fp32_groups_flat_partition
    for group, flat in zip(groups, flats, strict=True):
        for parameter in group:
            mapping = parameter._hp_mapping
            if mapping is None:
                yield parameter, Fragment(flat=flat, offset=0, start=0, numel=0)
                continue
            place, part = mapping.hp_fragment_address, mapping.lp_fragment_address
            yield parameter, Fragment(flat=flat, offset=place.start, start=part.start, numel=place.numel)
