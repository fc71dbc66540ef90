"""Which modules of a network are blocks."""

from __future__ import annotations

import pytest
from torch import nn

from core_fsdp import FSDPOptions
from core_fsdp.blocks import blocks


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({"text": nn.TransformerEncoderLayer(8, 2, 16), "plain": nn.Identity()})
        self.combiner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.decoders = nn.ModuleList([nn.Linear(8, 2)])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 8)
        self.inside = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.inside[1].weight = self.inside[0].weight
        self.head = nn.Linear(8, 4)
        self.head.weight = self.embedding.weight


def chosen(network: nn.Module, **options: object) -> list[str]:
    names = {module: name for name, module in network.named_modules()}
    return [names[block] for block in blocks(network, FSDPOptions(**options))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["encoders.text", "combiner", "decoders.0"]),
        ({"transformer_layer_cls_to_wrap": ["Linear"]}, ["decoders.0", "combiner.2", "combiner.0"]),
        ({"transformer_layer_cls_to_wrap": ["TransformerEncoderLayer"]}, ["encoders.text"]),
        ({"min_num_params": 70}, ["encoders.text", "combiner.0", "combiner.2"]),
        ({"min_num_params": 100}, ["encoders.text", "combiner"]),
        ({"min_num_params": 10_000}, []),
    ],
)
def test_policies(options, expected):
    assert chosen(Network(), **options) == expected


def test_a_parameter_that_is_also_held_outside_keeps_its_module_from_being_a_block():
    assert chosen(Tied()) == ["inside"]
    assert chosen(Tied(), transformer_layer_cls_to_wrap=["Linear", "Embedding"]) == []
