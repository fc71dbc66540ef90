from __future__ import annotations

import attrs
import pytest
import torch

from core.features.text import RNN, Embed, ParallelCNN, TextInput, TransformerEncoder

TOKENS = torch.tensor([[2, 3, 4, 0, 0, 0], [5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.int32)
VOCABULARY = ["<PAD>", "<UNK>", "a", "b", "c", "d"]

ENCODERS = {
    "embed": Embed(embedding_size=8),
    "embed_some_pairs": Embed(embedding_size=8, paired_tokens=3),
    "parallel_cnn": ParallelCNN(embedding_size=8, num_filters=4, output_size=8),
    "parallel_cnn_even": ParallelCNN(embedding_size=8, num_filters=4, filter_sizes=(4,), num_fc_layers=0),
    "rnn": RNN(embedding_size=8, state_size=8),
    "gru_two_layers": RNN(embedding_size=8, state_size=8, cell_type="gru", num_layers=2),
    "lstm_both_ways": RNN(embedding_size=8, state_size=8, cell_type="lstm", bidirectional=True),
    "transformer": TransformerEncoder(embedding_size=8, hidden_size=16, num_heads=2, transformer_output_size=8),
}


def _build(options, length=6):
    torch.manual_seed(0)
    return TextInput(name="x", encoder=options).build_encoder({"vocabulary": VOCABULARY, "length": length}).eval()


@pytest.mark.parametrize("reduction", ["mean", "sum", "max", "last"])
@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("training", [False, True])
def test_padding_changes_no_vector(options, reduction, training):
    encoder = _build(attrs.evolve(options, reduce_output=reduction, dropout=0.0)).train(training)

    together = encoder(TOKENS)

    assert together.shape == (3, encoder.output_size)
    assert together.isfinite().all()
    for row, length in enumerate((3, 1, 1)):
        alone = encoder(TOKENS[row : row + 1, :length])
        assert torch.allclose(alone[0], together[row], atol=1e-6)


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_words_and_their_neighbours_make_a_difference(options):
    encoder = _build(options)
    first, second = encoder(torch.tensor([[2, 3, 4, 5], [2, 3, 4, 2]]))

    assert not torch.allclose(first, second)


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_every_parameter_learns_and_padding_stays_zero(options):
    encoder = _build(attrs.evolve(options, reduce_output="sum"))

    encoder(TOKENS).square().sum().backward()

    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    embedding = encoder.tokens.embedding
    assert not embedding.weight[0].any()
    assert not embedding.weight.grad[0].any()


def test_a_mean_is_over_the_tokens_of_a_text():
    encoder = _build(Embed(embedding_size=4, paired_tokens=0))
    vectors = encoder.tokens.embedding.weight

    assert torch.allclose(encoder(TOKENS)[0], vectors[2:5].mean(0))
    assert not encoder(TOKENS)[2].any()


def test_frequent_neighbours_have_a_vector_of_their_own_in_their_order():
    encoder = _build(Embed(embedding_size=4, paired_tokens=3))
    words, pairs = encoder.tokens.embedding.weight, encoder.pairs.embedding.weight

    found = encoder(torch.tensor([[2, 4, 3, 5, 2, 1, 2, 0]]))

    numbers = [0 * 3 + 2 + 1, 2 * 3 + 1 + 1]  # 2 4 and 4 3; not 5, which is too rare, nor an unknown word
    expected = (words[[2, 4, 3, 5, 2, 1, 2]].sum(0) + pairs[numbers].sum(0)) / 7
    assert torch.allclose(found[0], expected)
