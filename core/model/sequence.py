"""Encoders of token sequences, (rows, length) of int32, to (rows, `output_size`).

Token 0 is padding. How much of it follows a text never changes its vector; a text of nothing but padding gets zeros
from the reduction.
"""

# mypy: disable-error-code="no-any-return"
# To torch, what calling a module returns is Any.

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.model.modules import FullyConnected, embedding, transformer
from core.model.options import Reduction

if TYPE_CHECKING:
    from core.features.text import RNN, Embed, ParallelCNN, TextEncoder, TransformerEncoder


FIRST_WORD = 2
"""The number of the most frequent word: 0 is padding, 1 an unknown word."""


class TokenEmbedding(nn.Module):
    """A vector for each token, zeros for padding."""

    def __init__(self, vocabulary: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, size, padding=0)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens))


def trimmed(tokens: Tensor) -> Tensor:
    """Without the columns that are padding in every row. Only on CPUs: elsewhere asking would wait for the device."""
    if tokens.device.type != "cpu" or torch.compiler.is_compiling():
        return tokens
    return tokens[:, : max(int(lengths(tokens).max()), 1)]


def lengths(tokens: Tensor) -> Tensor:
    """Tokens of each row before its padding, (rows,)."""
    return (tokens != 0).sum(1)


def reduced(vectors: Tensor, tokens: Tensor, how: Reduction) -> Tensor:
    """The vectors of each row's tokens, (rows, length, size), as one, (rows, size)."""
    mask = (tokens != 0)[:, :, None]
    match how:
        case "max":
            return vectors.masked_fill(~mask, -torch.inf).amax(1).masked_fill(~mask.any(1), 0)
        case "last":
            last = (lengths(tokens) - 1).clamp(min=0)[:, None, None].expand(-1, 1, vectors.shape[2])
            return vectors.gather(1, last).squeeze(1).masked_fill(~mask.any(1), 0)
        case "mean":
            return vectors.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp(min=1)
        case _:
            return vectors.masked_fill(~mask, 0).sum(1)


class SequenceEncoder(nn.Module):
    """Token vectors → what the subclass does with them → reduction → fully connected layers."""

    def __init__(self, options: TextEncoder, vocabulary: int, size: int) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(vocabulary, options.embedding_size, options.dropout)
        self.reduction = options.reduce_output
        self.layers = FullyConnected(
            size,
            layers=options.num_fc_layers,
            size=options.output_size,
            activation=options.activation,
            norm=options.norm,
            dropout=options.dropout,
            bias=True,
        )
        self.output_size = self.layers.output_size

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = trimmed(tokens)
        return self.layers(self.reduce(self.tokens(tokens), tokens))

    def reduce(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        """(rows, length, embedding size) → (rows, size)."""
        return reduced(vectors, tokens, self.reduction)


class EmbedEncoder(SequenceEncoder):
    """A bag of words and of pairs of words, so that "not good" is more than "not" and "good".

    Rare pairs would be learnt by heart, so only frequent words have pairs: few enough for a vector for each.
    """

    def __init__(self, options: Embed, vocabulary: int) -> None:
        super().__init__(options, vocabulary, options.embedding_size)
        self.paired = min(options.paired_tokens, vocabulary - FIRST_WORD)
        self.pairs = (
            TokenEmbedding(self.paired**2 + 1, options.embedding_size, options.dropout) if self.paired else None
        )

    def reduce(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        if self.pairs is not None:
            vectors = vectors + self.pairs(self._pair_numbers(tokens))
        return super().reduce(vectors, tokens)

    def _pair_numbers(self, tokens: Tensor) -> Tensor:
        """For each token, the number of the pair it begins; 0 for none."""
        words = tokens - FIRST_WORD
        frequent = (words >= 0) & (words < self.paired)
        numbers = (words[:, :-1] * self.paired + words[:, 1:] + 1) * (frequent[:, :-1] & frequent[:, 1:])
        return functional.pad(numbers, (0, 1))


class ParallelCNNEncoder(SequenceEncoder):
    """Convolutions of several widths over the same tokens."""

    def __init__(self, options: ParallelCNN, vocabulary: int) -> None:
        super().__init__(options, vocabulary, options.num_filters * len(options.filter_sizes))
        self.widths = options.filter_sizes
        self.convolutions = nn.ModuleList(
            nn.Conv1d(options.embedding_size, options.num_filters, width) for width in options.filter_sizes
        )

    def reduce(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        channels = vectors.transpose(1, 2)
        found = [
            convolution(_widened(channels, width))
            for convolution, width in zip(self.convolutions, self.widths, strict=True)
        ]
        return reduced(torch.cat(found, 1).relu().transpose(1, 2), tokens, self.reduction)


def _widened(channels: Tensor, width: int) -> Tensor:
    """Zeros at both ends, so that a convolution of that width keeps the length; zeros are what padding looks like."""
    return functional.pad(channels, ((width - 1) // 2, width // 2))


class RNNEncoder(SequenceEncoder):
    """A recurrent network over packed sequences, so that no direction ever reads padding."""

    def __init__(self, options: RNN, vocabulary: int) -> None:
        directions = 2 if options.bidirectional else 1
        super().__init__(options, vocabulary, options.state_size * directions)
        cell = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[options.cell_type]
        self.directions = directions
        self.cells = cell(
            options.embedding_size,
            options.state_size,
            options.num_layers,
            batch_first=True,
            bidirectional=options.bidirectional,
            dropout=options.dropout if options.num_layers > 1 else 0.0,
        )

    def reduce(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            vectors, lengths(tokens).clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, state = self.cells(packed)
        if self.reduction != "last":
            states, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True, total_length=tokens.shape[1])
            return reduced(states, tokens, self.reduction)
        final = state[0] if isinstance(state, tuple) else state
        # The top layer's final state of each direction: backwards, that is the one at the first token.
        last = final[-self.directions :].transpose(0, 1).flatten(1)
        return last.masked_fill(~(tokens != 0).any(1, keepdim=True), 0)


class TransformerTextEncoder(SequenceEncoder):
    """Transformer layers over token vectors with learnt positions."""

    def __init__(self, options: TransformerEncoder, vocabulary: int, length: int) -> None:
        super().__init__(options, vocabulary, options.hidden_size)
        self.projection = nn.Linear(options.embedding_size, options.hidden_size)
        self.positions = nn.Parameter(torch.empty(length, options.hidden_size))
        nn.init.normal_(self.positions, std=0.02)
        self.transformer = transformer(
            options.hidden_size, options.num_layers, options.num_heads, options.transformer_output_size, options.dropout
        )

    def reduce(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        # Attention over nothing is NaN, so an empty text attends to its first padding, which the reduction drops.
        hidden = padding & ~(padding.all(1, keepdim=True) & (torch.arange(tokens.shape[1], device=tokens.device) == 0))
        placed = self.projection(vectors) + self.positions[: tokens.shape[1]]
        return reduced(self.transformer(placed, src_key_padding_mask=hidden), tokens, self.reduction)
