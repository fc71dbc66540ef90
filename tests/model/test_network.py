from __future__ import annotations

import pytest
import torch
from torch import nn

from core.features.binary import BinaryInput, BinaryOutput
from core.features.category import CategoryInput, CategoryOutput
from core.features.number import NumberInput, NumberOutput, NumberPreprocessing
from core.features.text import RNN, Embed, ParallelCNN, TextInput, TransformerEncoder
from core.model.combiners import Concat, Transformer
from core.model.network import ECD, module_key
from core.model.options import Dense, Passthrough

METADATA = {
    "age": {},
    "member": {},
    "fare": {},
    "city": {"vocabulary": ["<UNK>", "a", "b"]},
    "note": {"vocabulary": ["<PAD>", "<UNK>", "a", "b"], "length": 3},
    "price": {"mean": 0.0, "std": 1.0},
    "kind": {"vocabulary": ["p", "q", "r"]},
    "sold": {"bool2str": ["no", "yes"]},
}
INPUTS = [
    NumberInput(name="age"),
    BinaryInput(name="member"),
    NumberInput(name="fare", encoder=Dense(num_layers=2, output_size=4, norm="batch")),
    CategoryInput(name="city"),
]
OUTPUTS = [NumberOutput(name="price"), CategoryOutput(name="kind"), BinaryOutput(name="sold")]
TEXT_ENCODERS = [
    Embed(embedding_size=4),
    ParallelCNN(embedding_size=4, num_filters=3),
    RNN(embedding_size=4, state_size=4, cell_type="lstm"),
    TransformerEncoder(embedding_size=4, hidden_size=4, num_heads=2),
]
COMBINERS = [Concat(output_size=8), Transformer(hidden_size=8, num_heads=2, transformer_output_size=8)]


def _network(encoder=TEXT_ENCODERS[0], combiner=COMBINERS[0]):
    torch.manual_seed(0)
    return ECD([*INPUTS, TextInput(name="note", encoder=encoder)], OUTPUTS, combiner, METADATA)


def _batch(rows):
    generator = torch.Generator().manual_seed(0)
    return {
        "age": torch.randn(rows, generator=generator),
        "member": torch.rand(rows, generator=generator) > 0.5,
        "fare": torch.randn(rows, generator=generator),
        "city": torch.randint(0, 3, (rows,), generator=generator, dtype=torch.int32),
        "note": torch.randint(0, 4, (rows, 3), generator=generator, dtype=torch.int32).sort(1, descending=True).values,
        "price": torch.randn(rows, generator=generator),
        "kind": torch.randint(0, 3, (rows,), generator=generator, dtype=torch.int32),
        "sold": torch.rand(rows, generator=generator) > 0.5,
    }


def _loss(outputs, batch):
    return sum(
        feature.row_losses(outputs[feature.name], batch[feature.name], METADATA[feature.name]).sum()
        for feature in OUTPUTS
    )


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("encoder", TEXT_ENCODERS)
@pytest.mark.parametrize("rows", [0, 1, 8])
def test_gradients_reach_every_parameter_whatever_the_number_of_rows(combiner, encoder, rows):
    network, batch = _network(encoder, combiner), _batch(rows)

    outputs = network(batch)
    _loss(outputs, batch).backward()

    assert {name: tuple(output.shape) for name, output in outputs.items()} == {
        "price": (rows,),
        "kind": (rows, 3),
        "sold": (rows,),
    }
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if rows == 0:
            assert not parameter.grad.any(), name


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("encoder", TEXT_ENCODERS)
def test_a_row_is_predicted_alike_alone_and_in_company(combiner, encoder):
    network, batch = _network(encoder, combiner).eval(), _batch(8)

    together = network(batch)
    for row in range(8):
        alone = network({name: column[row : row + 1] for name, column in batch.items()})
        for name, output in alone.items():
            assert torch.allclose(output[0], together[name][row], atol=1e-5)


def test_a_seed_fixes_the_weights():
    first, second = _network().state_dict(), _network().state_dict()

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_network_learns():
    network, batch = _network(), _batch(32)
    batch |= {"price": batch["age"], "kind": batch["city"], "sold": batch["note"][:, 0] == 3}
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    before = float(_loss(network(batch), batch).detach())

    for _ in range(200):
        optimizer.zero_grad()
        _loss(network(batch), batch).backward()
        optimizer.step()

    assert float(_loss(network(batch), batch).detach()) < before / 10


def test_names_in_the_state_are_those_of_the_features():
    names = set(_network().state_dict())

    assert "encoders.feature_city.embedding.weight" in names
    assert "encoders.feature_note.tokens.embedding.weight" in names
    assert "combiner.layers.0.0.weight" in names
    assert "decoders.feature_sold.projection.bias" in names
    assert not any("age" in name for name in names)  # a plain number has nothing to learn


AWKWARD = ["a.b", "a b", "a%2Eb", "keys", "training", "forward", "_modules", "größe", "a/b", "", "weight", "0"]


def test_features_of_any_name_get_keys_of_their_own():
    inputs = [CategoryInput(name=name) for name in AWKWARD]
    metadata = {name: {"vocabulary": ["<UNK>", "a"]} for name in AWKWARD} | {"y": METADATA["price"]}

    network = ECD(inputs, [NumberOutput(name="y")], Concat(), metadata)

    assert len({module_key(name) for name in AWKWARD}) == len(AWKWARD)
    assert len(network.encoders) == len(AWKWARD)
    for name in network.state_dict():
        assert isinstance(network.get_parameter(name), nn.Parameter)
    outputs = network({name: torch.zeros(2, dtype=torch.int32) for name in AWKWARD})
    assert outputs["y"].shape == (2,)


def test_tied_features_share_one_encoder():
    inputs = [CategoryInput(name="city", tied="town"), CategoryInput(name="town")]
    metadata = METADATA | {"town": METADATA["city"]}
    network = ECD(inputs, OUTPUTS, Concat(output_size=4), metadata)

    names = [name for name in network.state_dict() if name.startswith("encoders")]
    columns = {"city": torch.tensor([1, 2]), "town": torch.tensor([2, 1])}
    same = ECD(inputs, OUTPUTS, Concat(num_fc_layers=0), metadata)

    assert names == ["encoders.feature_town.embedding.weight"]
    combined = same.combiner(None, [same.encoders["feature_town"](columns[name]) for name in ("city", "town")])
    assert torch.equal(combined[0, :3], combined[1, 3:])
    assert network(columns)["price"].shape == (2,)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("encoder", TEXT_ENCODERS)
def test_mixed_precision_gives_losses_in_single_precision(combiner, encoder):
    network, batch = _network(encoder, combiner), _batch(4)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(batch)
        loss = _loss(outputs, batch)
    loss.backward()

    assert loss.dtype == torch.float32
    assert loss.isfinite()


@pytest.mark.parametrize(
    ("normalization", "bounded"), [("zscore", True), ("iqr", True), ("minmax", False), ("log1p", False), (None, False)]
)
@pytest.mark.parametrize("encoder", [Passthrough(), Dense(output_size=4)], ids=["passthrough", "dense"])
def test_an_extreme_number_moves_a_prediction_no_further_where_numbers_are_standardised(
    normalization, bounded, encoder
):
    torch.manual_seed(0)
    age = NumberInput(name="age", encoder=encoder, preprocessing=NumberPreprocessing(normalization=normalization))
    network = ECD([age, BinaryInput(name="member")], [OUTPUTS[0]], Concat(num_fc_layers=0), METADATA)
    columns = {"age": torch.tensor([100.0, 1000.0]), "member": torch.zeros(2, dtype=torch.bool)}

    first, second = network(columns)["price"].detach()

    assert torch.isclose(first, second, rtol=0.01) == bounded
