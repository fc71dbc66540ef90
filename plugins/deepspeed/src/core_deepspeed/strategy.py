"""DeepSpeed's engine as a strategy. DeepSpeed is imported where it trains, so that checking a config is quick."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import ConfigError
from core.strategy import MakeOptimizer, TorchGroup
from core_deepspeed.checks import problems
from core_deepspeed.options import DeepSpeedOptions


class DeepSpeed(TorchGroup):
    """ZeRO stages 0 to 3, with or without offload, in 32 or 16 bits."""

    options: DeepSpeedOptions
    engine: Any

    @classmethod
    def check(cls, options: Any, trainer: Any, cut: Any, world_size: int, device: str) -> None:
        if found := list(problems(options, trainer, cut, world_size, device)):
            raise ConfigError(found)

    def stop(self) -> None:
        if hasattr(self, "engine"):
            from core_deepspeed.engine import destroy_engine

            destroy_engine(self.engine)
        super().stop()

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> nn.Module:
        from core_deepspeed.engine import Model, Network, make_engine

        network = Network(model)
        optimizer = make_optimizer(model.parameters())
        names = {parameter: name for name, parameter in model.named_parameters()}
        self.group_names = [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]
        self.module = model
        self.engine = make_engine(self.options.sections(), network, optimizer, self.device)
        if self.engine.bfloat16_enabled() or self.engine.fp16_enabled():
            network.follow_weights()
        self.optimizer = self.engine.optimizer
        self.model = Model(self.engine, network)
        return self.model

    @contextlib.contextmanager
    def microbatch(self, *, last: bool) -> Any:
        self.engine.set_gradient_accumulation_boundary(last)
        yield

    def backward(self, loss: Tensor) -> None:
        scale = self.world_size if self.engine.gradient_average else 1
        self.engine.backward(loss * scale, scale_wrt_gas=False)

    def update(self, max_norm: float | None = None) -> Tensor | None:
        if self._plain:
            norm = nn.utils.clip_grad_norm_(self.module.parameters(), max_norm) if max_norm else None
            self.engine.step()
            return norm
        self.engine.optimizer.clip_grad = max_norm or 0.0
        self.engine.step()
        return torch.as_tensor(self.engine.get_global_grad_norm()) if max_norm else None

    def state(self) -> dict[str, Any]:
        if self._plain:
            return super().state()
        from core_deepspeed.state import gather

        weights, optimizer_state = gather(self.engine, self.module)
        groups = [
            {**group, "params": names}
            for group, names in zip(self.optimizer.param_groups, self.group_names, strict=True)
        ]
        return {"model": weights, "optimizer": {"state": optimizer_state, "param_groups": groups}}

    def load(self, state: dict[str, Any]) -> None:
        if self._plain:
            super().load(state)
        else:
            from core_deepspeed.state import scatter

            scatter(self.engine, self.module, state["model"], state["optimizer"].get("state", {}))

    @property
    def _plain(self) -> bool:
        """Stage 0 in 32 bits: every worker updates whole weights with torch's own optimiser."""
        return self.optimizer is self.engine.basic_optimizer
