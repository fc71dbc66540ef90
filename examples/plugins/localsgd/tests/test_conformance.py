"""With `period: 1` it promises what every strategy does; with a longer one, what local SGD is by definition."""

from __future__ import annotations

import copy
from typing import ClassVar

import pandas as pd
import pytest
import torch
from torch.nn import functional

import core
from core.testing.strategy import StrategyConformance
from core.testing.training import Plain, Plan, Step, batch, train
from core.testing.workers import Launcher
from core.training.optimizers import SGD
from core_localsgd import LocalSGDOptions
from core_localsgd.strategy import LocalSGD

PERIOD = 4
PLAN = Plan(optimizer=SGD(momentum=0.9), steps=[Step(rows=8, rate=0.05)] * (2 * PERIOD + 1), seed=3)


class TestEveryStep(StrategyConformance):
    strategy = "localsgd"
    options: ClassVar = {"period": 1}
    world_sizes = (2,)


class Apart(StrategyConformance):
    strategy = "localsgd"
    options: ClassVar = {"period": PERIOD}


@pytest.fixture(scope="module")
def launcher():
    with Launcher("core_localsgd.strategy") as made:
        yield made


def by_hand(workers: int) -> dict[str, torch.Tensor]:
    """Workers one after the other, whose weights and momentum are averaged after every period and at the end."""
    torch.manual_seed(PLAN.seed)
    models = [Plain()]
    models += [copy.deepcopy(models[0]) for _ in range(workers - 1)]
    optimizers = [PLAN.optimizer.build(model.parameters(), 0.05) for model in models]
    for number, step in enumerate(PLAN.steps):
        rows = batch(number, step.rows)
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            mine = {name: column.chunk(workers)[rank] for name, column in rows.items()}
            functional.cross_entropy(model(mine)["label"], mine["label"]).backward()
            optimizer.step()
            optimizer.zero_grad()
        if (number + 1) % PERIOD == 0 or number + 1 == len(PLAN.steps):
            with torch.no_grad():
                for parameters in zip(*(model.parameters() for model in models), strict=True):
                    mean = torch.stack(parameters).mean(0)
                    buffers = [o.state[p]["momentum_buffer"] for o, p in zip(optimizers, parameters, strict=True)]
                    momentum = torch.stack(buffers).mean(0)
                    for parameter, buffer in zip(parameters, buffers, strict=True):
                        parameter.copy_(mean)
                        buffer.copy_(momentum)
    return models[0].state_dict()


def test_workers_train_apart_and_are_averaged_each_period(launcher, tmp_path):
    (first, second) = Apart.run(launcher, 2, tmp_path, PLAN)

    for name, tensor in by_hand(2).items():
        torch.testing.assert_close(first.state["model"][name], tensor, rtol=0, atol=1e-5)
    assert first.outputs.equal(second.outputs), "what is measured is the average"


def test_a_checkpoint_in_the_middle_of_a_period_loses_nothing(launcher, tmp_path):
    whole = Plan(optimizer=PLAN.optimizer, steps=PLAN.steps, seed=3, state_before=6)
    (found, _) = Apart.run(launcher, 2, tmp_path / "whole", whole)
    rest = Plan(optimizer=PLAN.optimizer, steps=PLAN.steps[6:], first=6, seed=9, state=found.halfway)
    (continued, _) = Apart.run(launcher, 2, tmp_path / "rest", rest)

    for name, tensor in found.state["model"].items():
        torch.testing.assert_close(continued.state["model"][name], tensor, rtol=0, atol=1e-6)


def test_it_learns_as_well_as_one_process(tmp_path):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(600, 3, generator=random)
    frame = pd.DataFrame(x.numpy(), columns=list("abc")).assign(y=(x[:, 0] * x[:, 1] > x[:, 2]).numpy())
    losses = []
    for trainer in ({"strategy": "single"}, {"strategy": {"type": "localsgd", "period": 4}, "num_workers": 2}):
        config = {
            "input_features": [{"name": name, "type": "number"} for name in "abc"],
            "output_features": [{"name": "y", "type": "binary"}],
            "trainer": {"epochs": 12, "batch_size": 40, "learning_rate": 0.01, "early_stop": -1},
            "backend": {"type": "local", "trainer": {**trainer, "use_gpu": False}},
        }
        run = core.Model(config).train(frame, output_directory=tmp_path)
        losses.append(run.metrics("validation")["y"]["loss"])
    assert losses[1] < losses[0] * 1.15
    assert losses[1] < 0.5


@pytest.mark.parametrize(("period", "averages"), [(1, 12), (4, 3), (5, 3)])
def test_it_sends_what_it_says(period, averages):
    strategy = LocalSGD(
        LocalSGDOptions(period=period), torch.device("cpu")
    )  # alone: what it sends is counted all the same
    strategy.sum = strategy.broadcast = lambda tensor: tensor
    trained = train(strategy, Plan(steps=[Step()] * 12))
    weights = sum(tensor.nbytes for tensor in trained.state["model"].values())
    assert strategy.exchanged_bytes == averages * weights


def test_a_period_of_nothing_is_refused():
    with pytest.raises(ValueError, match="period"):
        LocalSGDOptions(period=0)
