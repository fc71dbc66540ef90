"""Config sections that several encoders, combiners and decoders have in common."""

from __future__ import annotations

from typing import Literal

import attrs

from core.config.fields import at_least_0, at_least_1, dropout_rate, setting

Activation = Literal["relu", "gelu", "silu", "elu", "leakyRelu", "tanh", "sigmoid", "logSigmoid"]
Norm = Literal["batch", "layer"]
Reduction = Literal["mean", "sum", "max", "last"]


@attrs.frozen(kw_only=True)
class Dense:
    """A stack of fully connected layers."""

    num_layers: int = setting(1, doc="Number of fully connected layers.", check=at_least_1)
    output_size: int = setting(256, doc="Units of each layer.", check=at_least_1)
    activation: Activation = setting("relu", doc="Activation after each layer.")
    norm: Norm | None = setting(None, doc="Normalisation after each layer, before its activation.")
    dropout: float = setting(0.0, doc="Dropout after each layer.", check=dropout_rate)
    bias: bool = setting(True, doc="Whether layers have a bias.")


@attrs.frozen(kw_only=True)
class Passthrough:
    """The value itself, as a vector of one number."""


@attrs.frozen(kw_only=True)
class DecoderLayers:
    """Fully connected layers between the combiner and the last projection."""

    num_fc_layers: int = setting(0, doc="Fully connected layers before the output.", check=at_least_0)
    fc_output_size: int = setting(256, doc="Units of each of these layers.", check=at_least_1)
    fc_activation: Activation = setting("relu", doc="Activation after each of these layers.")
    fc_norm: Norm | None = setting(None, doc="Normalisation after each of these layers.")
    fc_dropout: float = setting(0.0, doc="Dropout after each of these layers.", check=dropout_rate)
    fc_use_bias: bool = setting(True, doc="Whether these layers have a bias.")


def check_heads(hidden_size: int, num_heads: int) -> None:
    """Raises ValueError unless attention can share `hidden_size` out among its heads."""
    if hidden_size % num_heads:
        raise ValueError(f"hidden_size {hidden_size} is not a multiple of num_heads {num_heads}")
