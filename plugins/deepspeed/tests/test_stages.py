"""Every stage beside a single process: long runs, every optimiser, and runs that change stage and worker count."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from core.testing.strategy import CURVE, StrategyConformance
from core.testing.training import Frozen, Plan, Step, Tied, Trained
from core.training.optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RMSprop

CPU = {"device": "cpu"}
STAGES: dict[str, dict[str, Any]] = {
    "0": {},
    "1 offloaded": {"stage": 1, "offload_optimizer": CPU},
    "2": {"stage": 2},
    "2 offloaded": {"stage": 2, "offload_optimizer": CPU},
    "3": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "3 with small weights kept": {"stage": 3},
}
STEPS = 200


@pytest.fixture
def run(deepspeed_launcher, tmp_path):
    """Run a plan under a stage, or under ddp where it is None; returns what worker 0 saw."""
    taken = iter(range(100))

    def under(zero: dict[str, Any] | None, workers: int, plan: Plan) -> Trained:
        options = {} if zero is None else {"zero_optimization": zero}
        name = "ddp" if zero is None else "deepspeed"
        kit = type("Kit", (StrategyConformance,), {"strategy": name, "options": options})
        return kit.run(deepspeed_launcher, workers, tmp_path / str(next(taken)), plan)[0]

    return under


def alone(plan: Plan) -> Trained:
    return StrategyConformance.expected(plan)


def everything(state: dict[str, Any]) -> dict[str, Tensor]:
    """Weights, and what the optimiser keeps of each parameter."""
    kept = state["optimizer"]["state"]
    return state["model"] | {
        f"{name} {key}": torch.as_tensor(value) for name, entry in kept.items() for key, value in entry.items()
    }


def assert_same(found: Trained, expected: Trained) -> None:
    pairs = [(everything(found.state), everything(expected.state)), (found.outputs, expected.outputs)]
    for given, wanted in pairs:
        torch.testing.assert_close(given, wanted, rtol=1e-4, atol=2e-5, check_dtype=False)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["0", "1 offloaded", "2", "3"])
def test_200_steps_have_the_losses_of_a_single_process(run, stage):
    steps = [
        Step(rows=rows, parts=parts, rate=0.01, max_norm=norm) for rows, parts, norm in ((8, 1, 0.4), (7, 2, None))
    ]
    plan = Plan(optimizer=AdamW(weight_decay=0.1), steps=steps * (STEPS // 2), evaluate=True)

    found, expected = run(STAGES[stage], 2, plan), alone(plan)

    difference = max(abs(a - b) / abs(b) for a, b in zip(found.losses, expected.losses, strict=True))
    print(f"stage {stage}: {difference:.1e} over {STEPS} steps")
    assert difference <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["0", "2 offloaded", "3 with small weights kept"])
@pytest.mark.parametrize("network", [Tied, Frozen])
def test_tied_and_frozen_weights_are_those_of_a_single_process(run, stage, network):
    plan = attrs.evolve(CURVE, network=network)

    assert_same(run(STAGES[stage], 2, plan), alone(plan))


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(momentum=0.9, nesterov=True),
        Adam(amsgrad=True),
        NAdam(),
        Adamax(),
        Adagrad(),
        Adadelta(),
        RMSprop(momentum=0.5, centered=True),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_every_optimizer_trains_and_resumes_as_alone(run, optimizer):
    whole = Plan(optimizer=optimizer, steps=[Step(rate=0.01), Step(rows=7, rate=0.01)] * 2)
    first, second = attrs.evolve(whole, steps=whole.steps[:2]), attrs.evolve(whole, steps=whole.steps[2:], first=2)

    state = run(STAGES["2"], 2, first).state
    found = run(STAGES["3"], 2, attrs.evolve(second, seed=1, state=state))

    assert_same(found, alone(whole))


@pytest.mark.slow
@pytest.mark.parametrize(
    "course",
    [
        [(None, 2), ("1 offloaded", 3), ("3", 1), ("2", 2), (None, 1), ("0", 2)],
        [("0", 1), ("3", 2), (None, 2), ("2 offloaded", 1), ("3 with small weights kept", 3), ("1 offloaded", 2)],
    ],
)
def test_a_run_changes_strategy_stage_and_number_of_workers(run, course):
    steps = CURVE.steps
    length = len(steps) // len(course)
    state = None
    for number, (stage, workers) in enumerate(course):
        first = number * length
        plan = attrs.evolve(
            CURVE, steps=steps[first : first + length], first=first, seed=number, state=state, state_before=None
        )
        trained = run(None if stage is None else STAGES[stage], workers, plan)
        state = trained.state

    assert_same(trained, alone(CURVE))
