from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import DataError
from core.features.text import TextInput, TextPreprocessing


def _text(**preprocessing):
    return TextInput(name="x", preprocessing=TextPreprocessing(**preprocessing))


def _tokens(feature, text, learn, encode):
    """The tokens of a text, by way of its numbers."""
    metadata = learn(feature, [text])
    [numbers] = encode(feature, [text], metadata)
    return [metadata["vocabulary"][number] for number in numbers]


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens"),
    [
        ("space", "Hello, World!", ["hello,", "world!"]),
        ("space_punct", "Hello, World!", ["hello", ",", "world", "!"]),
        ("space_punct", "it's  a_b\t3.5%", ["it", "'", "s", "a_b", "3", ".", "5", "%"]),
        ("space_punct", "नमस्ते दुनिया—日本語", ["नमस्ते", "दुनिया", "—", "日本語"]),
        ("space_punct", "a\u00a0b", ["a", "b"]),
        ("space_punct", "(x)", ["(", "x", ")"]),
        ("characters", "Hé \n🙂", ["h", "é", " ", "\n", "🙂"]),
    ],
)
def test_texts_are_cut_into_tokens(learn, encode, tokenizer, text, tokens):
    assert _tokens(_text(tokenizer=tokenizer), text, learn, encode) == tokens


def test_case_is_kept_on_demand(learn, encode):
    assert _tokens(_text(lowercase=False), "A a", learn, encode) == ["A", "a"]


def test_frequent_tokens_come_first_after_padding_and_unknown(learn, encode):
    feature = _text(most_common=2)
    metadata = learn(feature, ["b a", "b c", "a d b"])

    assert metadata == {"vocabulary": ["<PAD>", "<UNK>", "b", "a"], "length": 3}
    assert encode(feature, ["a b", "c unseen b b a"], metadata) == [[3, 2, 0], [1, 1, 2]]


def test_a_text_cannot_name_the_padding(learn, encode):
    feature = _text(tokenizer="space", lowercase=False)
    metadata = learn(feature, ["<PAD> <UNK> a"])

    assert metadata["vocabulary"] == ["<PAD>", "<UNK>", "a"]
    assert encode(feature, ["<PAD> <UNK> a"], metadata) == [[1, 1, 2]]


@pytest.mark.parametrize(("longest", "length"), [(256, 3), (2, 2)])
def test_length_is_that_of_the_longest_text_up_to_the_limit(learn, longest, length):
    feature = _text(max_sequence_length=longest)
    metadata = learn(feature, ["a", "a b c", None])

    assert metadata["length"] == length
    assert feature.storage(metadata) == pa.list_(pa.int32(), length)


def test_empty_and_missing_texts_are_padding_alone(learn, encode):
    feature = _text()
    metadata = learn(feature, ["a b", None, ""])

    assert encode(feature, [None, "", "  "], metadata) == [[0, 0]] * 3
    assert encode(feature, [], metadata) == []


def test_a_column_without_texts_is_refused(learn):
    with pytest.raises(DataError, match="has no values"):
        learn(_text(), [None, "  "])


def test_missing_texts_can_be_filled(learn, encode):
    feature = _text(fill_value="nothing said")
    metadata = learn(feature, [None, "a"])

    assert metadata == {"vocabulary": ["<PAD>", "<UNK>", "a", "nothing", "said"], "length": 2}
    assert encode(feature, [None], metadata) == [[3, 4]]


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.text("ab ,é\n", max_size=8) | st.none(), min_size=1, max_size=12),
    data=st.data(),
    tokenizer=st.sampled_from(["space", "space_punct", "characters"]),
)
def test_partitions_cannot_change_anything(learn, encode, values, data, tokenizer):
    feature = _text(tokenizer=tokenizer, most_common=3, max_sequence_length=4)
    values = [*values, "b"]  # a column of nothing but blanks is refused
    cuts = data.draw(st.lists(st.integers(0, len(values)), max_size=4))
    cut = data.draw(st.integers(0, len(values)))

    metadata = learn(feature, values, cuts)

    assert metadata == learn(feature, values)
    assert encode(feature, values[:cut], metadata) + encode(feature, values[cut:], metadata) == encode(
        feature, values, metadata
    )
