from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from core.specs import StrategyOptions
from core.strategy import Strategy
from core.training.optimizers import AdamW


@pytest.fixture
def prepared():
    """Strategies of a single process, each with a network of its own."""

    def prepare() -> Strategy:
        strategy = Strategy(StrategyOptions(), torch.device("cpu"))
        strategy.prepare(nn.Linear(3, 2), lambda parameters: AdamW().build(parameters, 0.1))
        return strategy

    return prepare


def take_step(strategy: Strategy) -> None:
    strategy.backward(strategy.model(torch.ones(1, 3)).sum())
    strategy.step()


def test_training_on_leaves_the_state_that_was_loaded_as_it_was(prepared):
    first, second = prepared(), prepared()
    take_step(first)
    state = first.state()
    before = copy.deepcopy(state)

    second.load(state)
    take_step(second)

    torch.testing.assert_close(state["model"], before["model"], rtol=0, atol=0)
    torch.testing.assert_close(state["optimizer"]["state"], before["optimizer"]["state"], rtol=0, atol=0)
