"""Optimisers: config sections whose keys are torch's own, and how each is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from core.config.fields import at_least_0, positive, setting

if TYPE_CHECKING:
    import torch
    from torch import nn


@attrs.frozen(kw_only=True)
class Optimizer(ABC):
    """What turns gradients into updates. The learning rate is `trainer.learning_rate`."""

    torch_name: ClassVar[str]
    fused: ClassVar[bool] = False

    weight_decay: float = setting(0.0, doc="Decay of the weights at each step.", check=at_least_0)

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the torch class, `weight_decay` and `lr` apart."""

    def build(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """The torch optimiser, one kernel for all parameters where torch has one."""
        import torch

        arguments = self.arguments()
        if self.fused:
            arguments["fused"] = True
        make = getattr(torch.optim, self.torch_name)
        made: torch.optim.Optimizer = make(parameters, lr=learning_rate, weight_decay=self.weight_decay, **arguments)
        return made


def _decay(default: float, doc: str) -> Any:
    def check(_: Any, field: attrs.Attribute[Any], value: float) -> None:
        if not 0 <= value < 1:
            raise ValueError("must be at least 0 and less than 1")

    return setting(default, doc=doc, check=check)


@attrs.frozen(kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent."""

    torch_name = "SGD"
    fused = True

    momentum: float = setting(0.0, doc="Momentum.", check=at_least_0)
    dampening: float = setting(0.0, doc="Dampening of the momentum.", check=at_least_0)
    nesterov: bool = setting(False, doc="Use Nesterov's momentum.")

    def arguments(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "dampening": self.dampening, "nesterov": self.nesterov}


@attrs.frozen(kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015)."""

    torch_name = "Adam"
    fused = True

    beta1: float = _decay(0.9, "Decay of the running mean of gradients.")
    beta2: float = _decay(0.999, "Decay of the running mean of squared gradients.")
    eps: float = setting(1e-8, doc="Added to the denominator.", check=positive)
    amsgrad: bool = setting(False, doc="Use the AMSGrad variant.")

    def arguments(self) -> dict[str, Any]:
        return {"betas": (self.beta1, self.beta2), "eps": self.eps, "amsgrad": self.amsgrad}


@attrs.frozen(kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    torch_name = "AdamW"

    weight_decay: float = setting(0.01, doc="Decay of the weights at each step.", check=at_least_0)


@attrs.frozen(kw_only=True)
class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    torch_name = "NAdam"

    beta1: float = _decay(0.9, "Decay of the running mean of gradients.")
    beta2: float = _decay(0.999, "Decay of the running mean of squared gradients.")
    eps: float = setting(1e-8, doc="Added to the denominator.", check=positive)
    momentum_decay: float = setting(4e-3, doc="Decay of the momentum schedule.", check=at_least_0)

    def arguments(self) -> dict[str, Any]:
        return {"betas": (self.beta1, self.beta2), "eps": self.eps, "momentum_decay": self.momentum_decay}


@attrs.frozen(kw_only=True)
class Adamax(Optimizer):
    """Adam with the infinity norm (Kingma and Ba, 2015)."""

    torch_name = "Adamax"

    beta1: float = _decay(0.9, "Decay of the running mean of gradients.")
    beta2: float = _decay(0.999, "Decay of the running infinity norm.")
    eps: float = setting(1e-8, doc="Added to the denominator.", check=positive)

    def arguments(self) -> dict[str, Any]:
        return {"betas": (self.beta1, self.beta2), "eps": self.eps}


@attrs.frozen(kw_only=True)
class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011)."""

    torch_name = "Adagrad"

    initial_accumulator_value: float = setting(0.0, doc="Start of the sum of squares.", check=at_least_0)
    lr_decay: float = setting(0.0, doc="Decay of the learning rate.", check=at_least_0)
    eps: float = setting(1e-10, doc="Added to the denominator.", check=positive)

    def arguments(self) -> dict[str, Any]:
        return {
            "initial_accumulator_value": self.initial_accumulator_value,
            "lr_decay": self.lr_decay,
            "eps": self.eps,
        }


@attrs.frozen(kw_only=True)
class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012)."""

    torch_name = "Adadelta"

    rho: float = _decay(0.9, "Decay of the running mean of squared gradients.")
    eps: float = setting(1e-6, doc="Added to the denominator.", check=positive)

    def arguments(self) -> dict[str, Any]:
        return {"rho": self.rho, "eps": self.eps}


@attrs.frozen(kw_only=True)
class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton, 2012)."""

    torch_name = "RMSprop"

    momentum: float = setting(0.0, doc="Momentum.", check=at_least_0)
    alpha: float = _decay(0.99, "Smoothing of the running mean of squared gradients.")
    eps: float = setting(1e-8, doc="Added to the denominator.", check=positive)
    centered: bool = setting(False, doc="Divide by an estimate of the variance.")

    def arguments(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "alpha": self.alpha, "eps": self.eps, "centered": self.centered}


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "sgd": SGD,
    "nadam": NAdam,
    "adamax": Adamax,
    "adagrad": Adagrad,
    "adadelta": Adadelta,
    "rmsprop": RMSprop,
}
