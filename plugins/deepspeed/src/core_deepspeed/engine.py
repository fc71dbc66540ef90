"""DeepSpeed's engine: how it is made, and how it is taken down so that another can follow in this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from core_deepspeed.library import deepspeed, use_device
from core_deepspeed.options import Sections

OWNED: Sections = {
    # DeepSpeed wants batch sizes for its throughput timers alone. A step's micro-batches differ in number and in size,
    # so the strategy tells it of each last one.
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    # Absent it means 1.0, not none. The strategy sets it at each step.
    "gradient_clipping": 0.0,
    # The optimiser is torch's, offloaded or not: the same everywhere, and nothing is compiled.
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
"""What core decides of DeepSpeed's configuration."""


def configuration(sections: Sections) -> Sections:
    """What DeepSpeed reads. What may be given twice, if it is the same, comes from core."""
    return {key: value for key, value in sections.items() if key not in ("train_batch_size", "optimizer")} | OWNED


def make_engine(sections: Sections, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> Any:
    """The engine around `model` and `optimizer`, in the process group there is."""
    use_device(device.type)
    warnings.filterwarnings("ignore", r".*torch\.distributed\.\w+. is deprecated", FutureWarning)
    # Else DeepSpeed makes a copy of the group, which waits for half an hour whatever was asked for.
    deepspeed.utils.groups._WORLD_GROUP = torch.distributed.group.WORLD
    engine, *_ = deepspeed.initialize(
        args=SimpleNamespace(device_rank=device.index or 0),
        model=model,
        optimizer=optimizer,
        config=configuration(sections),
        dist_init_required=False,
    )
    return engine


def destroy_engine(engine: Any) -> None:
    """Let go of what the engine patched and of what it holds of the process group."""
    engine.destroy()
    deepspeed.utils.groups._release_process_group_references()


class Network(nn.Module):
    """What the engine wraps: the network, in the precision that was asked for around the engine.

    The engine turns a surrounding autocast off. And in 16 bits it casts the weights but not what they meet: so what
    enters a module with weights of its own takes their type.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.autocast: torch.autocast | None = None

    def follow_weights(self) -> None:
        for module in self.network.modules():
            weight = next((p for p in module.parameters(recurse=False) if p.is_floating_point()), None)
            if weight is None:
                continue
            module.register_forward_pre_hook(_cast_to(weight.dtype))
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    setattr(module, name, buffer.to(weight.dtype))

    def forward(self, columns: dict[str, Tensor]) -> Any:
        if self.autocast is None:
            return self.network(columns)
        with self.autocast:
            return self.network(columns)


def _cast_to(dtype: torch.dtype) -> Any:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value for value in inputs
        )

    return hook


class Model(nn.Module):
    """What the training loop calls."""

    def __init__(self, engine: Any, network: Network) -> None:
        super().__init__()
        self.engine = engine
        self.network = network

    def forward(self, columns: dict[str, Tensor]) -> Any:
        kind = self.engine.device.type
        enabled = torch.is_autocast_enabled(kind)
        self.network.autocast = torch.autocast(kind, torch.get_autocast_dtype(kind)) if enabled else None
        if not torch.is_inference_mode_enabled():
            return self.engine(columns)
        # Weights gathered in inference mode, which stage 3 keeps where they are small, could not be trained afterwards.
        with torch.inference_mode(False), torch.no_grad():
            return self.engine(columns)

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Whole weights, for a penalty on them: stage 3 divides them, so these are copies that pass gradients on."""
        for parameter in super().parameters(recurse):
            if hasattr(parameter, "ds_id") and parameter.requires_grad:
                with deepspeed.zero.GatheredParameters([parameter]):
                    copy = _Copy.apply(parameter)  # type: ignore[no-untyped-call]
                yield copy
            else:
                yield parameter


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, weight: Tensor) -> Tensor:
        return weight.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient
