"""Combiners: how the encoded inputs of a row become one vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from core.config.fields import at_least_0, at_least_1, dropout_rate, setting
from core.model.options import Activation, Norm, check_heads

if TYPE_CHECKING:
    from torch import nn


@attrs.frozen(kw_only=True)
class Combiner(ABC):
    """What all combiners have: fully connected layers at the end."""

    num_fc_layers: int = setting(0, doc="Fully connected layers at the end.", check=at_least_0)
    output_size: int = setting(256, doc="Units of each of these layers.", check=at_least_1)
    norm: Norm | None = setting(None, doc="Normalisation after each of these layers.")
    bias: bool = setting(True, doc="Whether these layers have a bias.")

    @abstractmethod
    def build(self, scalars: int, sizes: Sequence[int]) -> nn.Module:
        """A module that maps `(scalars, vectors)` to (rows, `output_size`).

        The inputs that are one plain number arrive together as a tensor of shape (rows, `scalars`), or None where
        there are none; the others as a list of tensors, the n-th of shape (rows, `sizes[n]`).
        """


@attrs.frozen(kw_only=True)
class Concat(Combiner):
    """Side by side, through fully connected layers."""

    num_fc_layers: int = setting(2, doc="Fully connected layers after the concatenation.", check=at_least_0)
    activation: Activation = setting("relu", doc="Activation after each layer.")
    dropout: float = setting(0.0, doc="Dropout after each layer.", check=dropout_rate)
    residual: bool = setting(False, doc="Add each layer's input to its output, where their sizes are equal.")

    def build(self, scalars: int, sizes: Sequence[int]) -> nn.Module:
        from core.model.modules import ConcatModule

        return ConcatModule(self, scalars, sizes)


@attrs.frozen(kw_only=True)
class Transformer(Combiner):
    """Every input attends to every other, as in FT-Transformer (https://arxiv.org/abs/2106.11959)."""

    num_layers: int = setting(1, doc="Number of transformer layers.", check=at_least_1)
    hidden_size: int = setting(256, doc="Size of each input's vector; a multiple of `num_heads`.", check=at_least_1)
    num_heads: int = setting(8, doc="Number of attention heads.", check=at_least_1)
    transformer_output_size: int = setting(256, doc="Units between the two layers of a block.", check=at_least_1)
    dropout: float = setting(0.1, doc="Dropout inside the transformer layers.", check=dropout_rate)
    reduce_output: Literal["mean", "sum", "max"] = setting("mean", doc="How the inputs' vectors become one.")
    fc_activation: Activation = setting("relu", doc="Activation after each fully connected layer.")
    fc_dropout: float = setting(0.0, doc="Dropout after each fully connected layer.", check=dropout_rate)
    fc_residual: bool = setting(False, doc="Add each layer's input to its output, where their sizes are equal.")

    def __attrs_post_init__(self) -> None:
        check_heads(self.hidden_size, self.num_heads)

    def build(self, scalars: int, sizes: Sequence[int]) -> nn.Module:
        from core.model.modules import TransformerModule

        return TransformerModule(self, scalars, sizes)


COMBINERS: dict[str, type[Combiner]] = {"concat": Concat, "transformer": Transformer}
