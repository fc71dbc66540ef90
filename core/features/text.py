"""Text as input: tokens, numbered by how frequent they are, read by a sequence encoder."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from core.config.fields import at_least_0, at_least_1, dropout_rate, setting
from core.errors import DataError
from core.features import columns
from core.features.base import InputFeature, Metadata, Summary
from core.model.options import Activation, Norm, Reduction, check_heads

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from torch import nn

PAD, UNKNOWN = "<PAD>", "<UNK>"
"""The tokens of numbers 0 and 1."""

Tokenizer = Literal["space", "space_punct", "characters"]
Strategy = Literal["fill_with_const", "bfill", "ffill", "drop_row"]


@attrs.frozen(kw_only=True)
class TextPreprocessing:
    """How text becomes numbers."""

    missing_value_strategy: Strategy = setting("fill_with_const", doc="What happens where a value is missing.")
    fill_value: str = setting("", doc="The text that `fill_with_const` puts in.")
    tokenizer: Tokenizer = setting("space_punct", doc="Tokens are words, words and punctuation marks, or characters.")
    lowercase: bool = setting(True, doc="Whether upper case is read as lower case.")
    most_common: int = setting(20000, doc="Most tokens kept; rarer ones become <UNK>.", check=at_least_1)
    max_sequence_length: int = setting(256, doc="Most tokens read of a text.", check=at_least_1)


@attrs.frozen(kw_only=True)
class TextEncoder:
    """What the encoders of text have in common."""

    embedding_size: int = setting(256, doc="Size of a token's vector.", check=at_least_1)
    num_fc_layers: int = setting(0, doc="Fully connected layers after the reduction.", check=at_least_0)
    output_size: int = setting(256, doc="Units of each of these layers.", check=at_least_1)
    activation: Activation = setting("relu", doc="Activation after each of these layers.")
    norm: Norm | None = setting(None, doc="Normalisation after each of these layers.")
    dropout: float = setting(0.0, doc="Dropout on token vectors and after these layers.", check=dropout_rate)
    reduce_output: Reduction = setting("mean", doc="How the vectors of all tokens become one.")


@attrs.frozen(kw_only=True)
class Embed(TextEncoder):
    """A learnt vector for each token, and for each pair of frequent tokens that are neighbours, reduced."""

    embedding_size: int = setting(32, doc="Size of a token's vector.", check=at_least_1)
    paired_tokens: int = setting(
        400, doc="How many of the most frequent tokens have vectors in pairs too; 0 for none.", check=at_least_0
    )


@attrs.frozen(kw_only=True)
class ParallelCNN(TextEncoder):
    """Convolutions of several widths beside each other, as in https://arxiv.org/abs/1408.5882."""

    num_filters: int = setting(256, doc="Filters of each width.", check=at_least_1)
    filter_sizes: tuple[int, ...] = setting(
        (2, 3, 4, 5), doc="Widths, in tokens.", check=attrs.validators.deep_iterable(at_least_1)
    )
    num_fc_layers: int = setting(2, doc="Fully connected layers after the reduction.", check=at_least_0)
    reduce_output: Reduction = setting("max", doc="How the vectors of all tokens become one.")


@attrs.frozen(kw_only=True)
class RNN(TextEncoder):
    """A recurrent network that reads one token after the other."""

    cell_type: Literal["rnn", "lstm", "gru"] = setting("rnn", doc="Kind of recurrent cell.")
    state_size: int = setting(256, doc="Size of the state.", check=at_least_1)
    num_layers: int = setting(1, doc="Recurrent layers on top of each other.", check=at_least_1)
    bidirectional: bool = setting(False, doc="Read backwards too.")
    reduce_output: Reduction = setting("last", doc="How the states become one; last takes the final ones.")


@attrs.frozen(kw_only=True)
class TransformerEncoder(TextEncoder):
    """Every token attends to every other."""

    num_layers: int = setting(1, doc="Number of transformer layers.", check=at_least_1)
    hidden_size: int = setting(256, doc="Size of the vectors inside; a multiple of `num_heads`.", check=at_least_1)
    num_heads: int = setting(8, doc="Number of attention heads.", check=at_least_1)
    transformer_output_size: int = setting(256, doc="Units between the two layers of a block.", check=at_least_1)
    dropout: float = setting(0.1, doc="Dropout inside the transformer and after these layers.", check=dropout_rate)

    def __attrs_post_init__(self) -> None:
        check_heads(self.hidden_size, self.num_heads)


ENCODERS: dict[str, type[TextEncoder]] = {
    "embed": Embed,
    "parallel_cnn": ParallelCNN,
    "rnn": RNN,
    "transformer": TransformerEncoder,
}


class TextSummary(Summary):
    """How often each token occurs, the length of the longest text, and the number of texts."""

    def __init__(self, preprocessing: TextPreprocessing) -> None:
        self.preprocessing = preprocessing
        self.counts: Counter[str] = Counter()
        self.longest = 0
        self.texts = 0

    def update(self, values: pa.Array) -> None:
        tokens, _, lengths = tokenize(values.fill_null(self.preprocessing.fill_value), self.preprocessing)
        counts, _ = columns.counts(tokens)
        self.counts.update(counts)
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.texts += len(values) - values.null_count

    def merge(self, other: TextSummary) -> None:
        self.counts.update(other.counts)
        self.longest = max(self.longest, other.longest)
        self.texts += other.texts

    def finish(self) -> Metadata:
        if not self.texts:
            raise DataError("has no values", expected="at least one text", hint="All rows of the column are empty.")
        words = columns.by_frequency(self.counts)
        words = [word for word in words if word not in (PAD, UNKNOWN)][: self.preprocessing.most_common]
        length = min(max(self.longest, 1), self.preprocessing.max_sequence_length)
        return {"vocabulary": [PAD, UNKNOWN, *words], "length": length}


@attrs.frozen(kw_only=True)
class TextInput(InputFeature):
    """A text the model reads."""

    type: ClassVar[str] = "text"

    preprocessing: TextPreprocessing = setting(factory=TextPreprocessing, doc="How text becomes numbers.")
    encoder: TextEncoder = setting(
        factory=Embed,
        doc="What turns the tokens into a vector.",
        choices=ENCODERS,
        default_choice="embed",
    )

    def parse(self, column: pa.ChunkedArray) -> pa.Array:
        return columns.texts(column)

    def summary(self) -> TextSummary:
        return TextSummary(self.preprocessing)

    def encode(self, values: pa.Array, metadata: Metadata) -> pa.Array:
        """Token numbers, cut at the end or filled up with 0 to the same length."""
        import numpy as np
        import pyarrow as pa

        tokens, rows, lengths = tokenize(values.fill_null(self.preprocessing.fill_value), self.preprocessing)
        places = np.arange(len(rows)) - (np.cumsum(lengths) - lengths)[rows]
        kept = places < metadata["length"]
        words = metadata["vocabulary"][2:]  # not the first two, so that a text that says <PAD> is read as unknown
        numbers = columns.codes(tokens, words).fill_null(-1).to_numpy() + 2
        encoded = np.zeros((len(values), metadata["length"]), np.int32)
        encoded[rows[kept], places[kept]] = numbers[kept]
        return pa.FixedSizeListArray.from_arrays(pa.array(encoded.ravel()), type=self.storage(metadata))

    def storage(self, metadata: Metadata) -> pa.DataType:
        import pyarrow as pa

        return pa.list_(pa.int32(), metadata["length"])

    def build_encoder(self, metadata: Metadata) -> nn.Module:
        from core.model import sequence

        vocabulary, length = len(metadata["vocabulary"]), metadata["length"]
        match self.encoder:
            case ParallelCNN():
                return sequence.ParallelCNNEncoder(self.encoder, vocabulary)
            case RNN():
                return sequence.RNNEncoder(self.encoder, vocabulary)
            case TransformerEncoder():
                return sequence.TransformerTextEncoder(self.encoder, vocabulary, length)
            case _:
                assert isinstance(self.encoder, Embed)
                return sequence.EmbedEncoder(self.encoder, vocabulary)


def tokenize(values: pa.Array, preprocessing: TextPreprocessing) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The tokens of all texts in one array, the row of each token, and the number of tokens of each row."""
    import numpy as np
    import pyarrow.compute as pc

    if preprocessing.lowercase:
        values = pc.utf8_lower(values)
    match preprocessing.tokenizer:
        case "characters":
            lists = pc.split_pattern(pc.replace_substring_regex(values, r"(?s)(.)", "\\1\0"), "\0")
        case "space_punct":
            # A mark is what is no letter, no accent on one, no digit, no underscore and no blank.
            spaced = pc.replace_substring_regex(values, r"([^\p{L}\p{M}\p{N}_\s])", r" \1 ")
            lists = pc.utf8_split_whitespace(spaced)
        case _:
            lists = pc.utf8_split_whitespace(values)
    tokens, rows = lists.flatten(), pc.list_parent_indices(lists)
    real = pc.not_equal(tokens, "")  # a split leaves an empty token where a text starts or ends with a separator
    rows = rows.filter(real).to_numpy()
    return tokens.filter(real), rows, np.bincount(rows, minlength=len(values))
