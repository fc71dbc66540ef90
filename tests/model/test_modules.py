from __future__ import annotations

import pytest
import torch

from core.model.combiners import Concat, Transformer
from core.model.modules import ACTIVATIONS, FullyConnected, Residual, softly_limited


def _layers(**settings):
    defaults = {"layers": 2, "size": 4, "activation": "relu", "norm": None, "dropout": 0.0, "bias": True}
    return FullyConnected(3, **{**defaults, **settings})


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", [None, "batch", "layer"])
@pytest.mark.parametrize("rows", [1, 5])
def test_stacks_of_every_kind_train_on_any_number_of_rows(activation, norm, rows):
    layers = _layers(activation=activation, norm=norm, dropout=0.1, residual=True)

    output = layers(torch.randn(rows, 3))
    output.sum().backward()

    assert output.shape == (rows, layers.output_size)
    assert output.isfinite().all()
    assert all(parameter.grad is not None for parameter in layers.parameters())


def test_no_layers_pass_the_input_on():
    rows = torch.randn(2, 3)

    assert _layers(layers=0).output_size == 3
    assert _layers(layers=0)(rows) is rows


def test_residual_connections_join_layers_of_equal_size():
    kinds = [isinstance(layer, Residual) for layer in _layers(layers=3, residual=True)]

    assert kinds == [False, True, True]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dropout_is_there_when_asked_for(dropout):
    assert any(isinstance(module, torch.nn.Dropout) for module in _layers(dropout=dropout).modules()) == (dropout > 0)


@pytest.mark.parametrize(
    "options",
    [
        Concat(output_size=8),
        Concat(num_fc_layers=0),
        Transformer(hidden_size=8, num_heads=2, transformer_output_size=8),
        Transformer(hidden_size=8, num_heads=2, num_fc_layers=1, output_size=4, reduce_output="max"),
        Transformer(hidden_size=8, num_heads=2, reduce_output="sum"),
    ],
)
@pytest.mark.parametrize(("scalars", "sizes"), [(3, []), (0, [4, 2]), (2, [4])])
def test_combiners_take_numbers_and_vectors(options, scalars, sizes):
    module = options.build(scalars, sizes)
    numbers = torch.randn(5, scalars, requires_grad=True) if scalars else None
    vectors = [torch.randn(5, size, requires_grad=True) for size in sizes]

    combined = module(numbers, vectors)
    combined.square().sum().backward()

    assert combined.shape == (5, module.output_size)
    for tensor in (*module.parameters(), *vectors, *([] if numbers is None else [numbers])):
        assert tensor.grad is not None


def test_a_transformer_needs_heads_that_divide_its_size():
    with pytest.raises(ValueError, match="not a multiple"):
        Transformer(hidden_size=10, num_heads=4)


def test_the_soft_limit_leaves_ordinary_values_and_squeezes_extreme_ones_in_order():
    numbers = torch.tensor([-1e30, -50.0, -3.0, -0.1, 0.0, 0.1, 1.0, 3.0, 50.0, 1e30])

    limited = softly_limited(numbers)

    assert limited.abs().max() <= 3
    assert (limited.diff() >= 0).all()
    torch.testing.assert_close(limited[3:7], numbers[3:7], atol=0.06, rtol=0)
