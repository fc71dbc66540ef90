"""The layers that encoders, combiners and decoders are made of."""

# mypy: disable-error-code="no-any-return"
# To torch, what calling a module returns is Any.

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.model.combiners import Concat, Transformer
from core.model.options import Activation, DecoderLayers, Dense, Norm, Passthrough

ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "leakyRelu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "logSigmoid": nn.LogSigmoid,
}


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that a batch of one row cannot stop: it is normalised as in evaluation."""

    def forward(self, rows: Tensor) -> Tensor:
        if self.training and len(rows) < 2:
            return functional.batch_norm(
                rows, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(rows)


NORMS: dict[Norm, type[nn.Module]] = {"batch": BatchNorm, "layer": nn.LayerNorm}


class FullyConnected(nn.Sequential):
    """Equal layers: linear, normalisation, activation, dropout.

    Attributes:
        output_size: width of the result; that of the input where there are no layers.
    """

    def __init__(
        self,
        input_size: int,
        *,
        layers: int,
        size: int,
        activation: Activation,
        norm: Norm | None,
        dropout: float,
        bias: bool,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = input_size
        for number in range(layers):
            layer = nn.Sequential()
            linear = nn.Linear(self.output_size, size, bias=bias)
            layer.append(linear)
            if norm is not None:
                layer.append(NORMS[norm](size))
            layer.append(ACTIVATIONS[activation]())
            if dropout:
                layer.append(nn.Dropout(dropout))
            self.add_module(str(number), Residual(layer) if residual and self.output_size == size else layer)
            self.output_size = size


class Residual(nn.Module):
    """Adds a layer's input to its output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, rows: Tensor) -> Tensor:
        return rows + self.layer(rows)


def softly_limited(numbers: Tensor) -> Tensor:
    """Squeezed into ±3, almost unchanged near 0: a mistyped or an extreme value then moves a prediction no further.

    From "Better by Default", https://arxiv.org/abs/2407.04491.
    """
    bounded = numbers.clamp(-1e18, 1e18)  # whose squares are finite
    return bounded * torch.rsqrt(1 + (bounded / 3).square())


class Scalar(nn.Module):
    """A plain number. The network stacks all of these in one operation, so this is only a mark.

    Attributes:
        limited: whether the network limits the number softly.
    """

    output_size = 1

    def __init__(self, *, limited: bool) -> None:
        super().__init__()
        self.limited = limited


class DenseScalar(nn.Module):
    """A number, (rows,), through dense layers."""

    def __init__(self, options: Dense, *, limited: bool) -> None:
        super().__init__()
        self.limited = limited
        self.layers = FullyConnected(
            1,
            layers=options.num_layers,
            size=options.output_size,
            activation=options.activation,
            norm=options.norm,
            dropout=options.dropout,
            bias=options.bias,
        )
        self.output_size = self.layers.output_size

    def forward(self, numbers: Tensor) -> Tensor:
        numbers = numbers.float()[:, None]
        return self.layers(softly_limited(numbers) if self.limited else numbers)


def scalar_encoder(options: Passthrough | Dense, *, limited: bool = False) -> Scalar | DenseScalar:
    return DenseScalar(options, limited=limited) if isinstance(options, Dense) else Scalar(limited=limited)


def embedding(count: int, size: int, padding: int | None = None) -> nn.Embedding:
    """Vectors that start out small: what is seen once or twice then says nothing at first, not something at random."""
    table = nn.Embedding(count, size, padding_idx=padding)
    nn.init.normal_(table.weight, std=0.02)
    if padding is not None:
        nn.init.zeros_(table.weight[padding])
    return table


class CategoryEmbedding(nn.Module):
    """A learnt vector for each category."""

    def __init__(self, categories: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding(categories, size)
        self.dropout = nn.Dropout(dropout)
        self.output_size = size

    def forward(self, codes: Tensor) -> Tensor:
        return self.dropout(self.embedding(codes))


class OneHot(nn.Module):
    """A vector of zeros with a one at the category's place."""

    def __init__(self, categories: int) -> None:
        super().__init__()
        self.output_size = categories

    def forward(self, codes: Tensor) -> Tensor:
        return functional.one_hot(codes.long(), self.output_size).float()


class Decoder(nn.Module):
    """Fully connected layers and a linear projection to (rows, `output_size`)."""

    def __init__(self, options: DecoderLayers, input_size: int, output_size: int) -> None:
        super().__init__()
        self.layers = FullyConnected(
            input_size,
            layers=options.num_fc_layers,
            size=options.fc_output_size,
            activation=options.fc_activation,
            norm=options.fc_norm,
            dropout=options.fc_dropout,
            bias=options.fc_use_bias,
        )
        self.projection = nn.Linear(self.layers.output_size, output_size)

    def forward(self, rows: Tensor) -> Tensor:
        return self.projection(self.layers(rows))


class ScalarDecoder(Decoder):
    """A decoder to one number a row, (rows,)."""

    def __init__(self, options: DecoderLayers, input_size: int) -> None:
        super().__init__(options, input_size, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows).squeeze(1)


class ConcatModule(nn.Module):
    """Inputs side by side, through fully connected layers."""

    def __init__(self, options: Concat, scalars: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = FullyConnected(
            scalars + sum(sizes),
            layers=options.num_fc_layers,
            size=options.output_size,
            activation=options.activation,
            norm=options.norm,
            dropout=options.dropout,
            bias=options.bias,
            residual=options.residual,
        )
        self.output_size = self.layers.output_size

    def forward(self, scalars: Tensor | None, vectors: list[Tensor]) -> Tensor:
        return self.layers(torch.cat(vectors if scalars is None else [scalars, *vectors], 1))


class ScalarTokens(nn.Module):
    """A linear map of its own for each of several numbers, (rows, numbers) → (rows, numbers, `size`)."""

    def __init__(self, numbers: int, size: int) -> None:
        super().__init__()
        # Uniform in ±1, as nn.Linear draws the weights of a single input.
        self.weight = nn.Parameter(torch.empty(numbers, size).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.empty(numbers, size).uniform_(-1, 1))

    def forward(self, numbers: Tensor) -> Tensor:
        return numbers[:, :, None] * self.weight + self.bias


class TransformerModule(nn.Module):
    """Each input projected to a token of its own; tokens attend to one another and are reduced to one vector."""

    def __init__(self, options: Transformer, scalars: int, sizes: Sequence[int]) -> None:
        super().__init__()
        size = options.hidden_size
        self.scalars = ScalarTokens(scalars, size) if scalars else None
        self.projections = nn.ModuleList(nn.Linear(width, size) for width in sizes)
        self.transformer = transformer(
            size, options.num_layers, options.num_heads, options.transformer_output_size, options.dropout
        )
        self.reduce = options.reduce_output
        self.layers = FullyConnected(
            size,
            layers=options.num_fc_layers,
            size=options.output_size,
            activation=options.fc_activation,
            norm=options.norm,
            dropout=options.fc_dropout,
            bias=options.bias,
            residual=options.fc_residual,
        )
        self.output_size = self.layers.output_size

    def forward(self, scalars: Tensor | None, vectors: list[Tensor]) -> Tensor:
        projected = [layer(vector) for layer, vector in zip(self.projections, vectors, strict=True)]
        tokens = [torch.stack(projected, 1)] if projected else []
        if self.scalars is not None:
            tokens.insert(0, self.scalars(scalars))
        mixed = self.transformer(torch.cat(tokens, 1))
        match self.reduce:
            case "mean":
                reduced = mixed.mean(1)
            case "sum":
                reduced = mixed.sum(1)
            case _:
                reduced = mixed.amax(1)
        return self.layers(reduced)


def transformer(size: int, layers: int, heads: int, inner_size: int, dropout: float) -> nn.TransformerEncoder:
    """Transformer layers over (rows, tokens, `size`), normalised before each block, which trains without warm-up."""
    layer = nn.TransformerEncoderLayer(size, heads, inner_size, dropout, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, nn.LayerNorm(size), enable_nested_tensor=False)
