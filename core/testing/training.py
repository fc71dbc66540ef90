"""What the conformance kit of strategies trains: small networks, on rows that follow from the number of the step.

`train` is core's loop without everything that no strategy sees. It runs in the workers under the strategy on trial,
and in the test's own process under core's strategy of a single process, whose numbers are the right ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.loader import BatchPlan
from core.registry import registry
from core.specs import StrategyOptions
from core.strategy import Strategy
from core.training.optimizers import SGD, Optimizer

INPUTS, HIDDEN, CLASSES = 5, 7, 3
"""Widths that no number of workers divides."""

PROBE_STEP, PROBE_ROWS = 1_000_000, 6


class Plain(nn.Module):
    """A perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU()
        )
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"label": self.head(self.layers(columns["x"]))}


class Tied(nn.Module):
    """A module that is used twice, and a parameter that has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({"a": nn.Linear(INPUTS, HIDDEN)})
        self.first = nn.Linear(HIDDEN, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.second.weight = self.first.weight
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        x = columns["x"]
        hidden = self.encoders["a"](x) + self.encoders["a"](x.flip(1)).tanh()
        return {"label": self.head(self.second(F.gelu(self.first(hidden))))}


class Frozen(nn.Module):
    """Parameters that do not learn, one of a single number, modules without any, and buffers of every kind."""

    known: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(INPUTS, HIDDEN).requires_grad_(False)
        self.gain = nn.Parameter(torch.full((1,), 1.5))
        self.activations = nn.ModuleList([nn.GELU(), nn.Identity()])
        self.head = nn.Linear(HIDDEN, CLASSES)
        self.register_buffer("mean", torch.randn(INPUTS))
        self.register_buffer("seen", torch.tensor(3))
        self.register_buffer("known", torch.arange(INPUTS) != 1)
        self.register_buffer("scale", torch.tensor(0.7), persistent=False)

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden = self.frozen((columns["x"] - self.mean) * self.known * self.scale)
        for activation in self.activations:
            hidden = activation(hidden)
        return {"label": self.head(hidden * self.gain)}


class Branching(nn.Module):
    """Parameters of which a step uses one half or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(INPUTS, HIDDEN) for _ in range(2)])
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        chosen = self.branches[int(columns["branch"][0])]
        return {"label": self.head(F.gelu(chosen(columns["x"])))}


@attrs.frozen(kw_only=True)
class Step:
    """One optimiser step.

    Attributes:
        rows: over all workers.
        parts: micro-batches each worker cuts its share into.
    """

    rows: int = 8
    parts: int = 1
    max_norm: float | None = None
    rate: float = 0.1


@attrs.frozen(kw_only=True)
class Plan:
    """A training run.

    Attributes:
        first: number of the first step, which decides its rows.
        seed: of the first weights.
        state: what to continue from.
        state_before: number of the step before which `Strategy.state` is taken, beside the one at the end.
        evaluate: go through the model in inference mode before each step, with fewer rows than workers at times.
        faulty: what the last worker does in the middle of the last step.
    """

    network: type[nn.Module] = Plain
    optimizer: Optimizer = SGD()  # noqa: RUF009  # frozen
    steps: Sequence[Step]
    first: int = 0
    seed: int = 0
    state: dict[str, Any] | None = None
    state_before: int | None = None
    evaluate: bool = False
    faulty: Literal["raises", "sleeps"] | None = None


@attrs.frozen(kw_only=True, eq=False)
class Trained:
    """What one worker saw of a run.

    Attributes:
        names: of the parameters of `strategy.module`.
        losses: of each step, over all workers.
        norms: what each step returned.
        outputs: of the model at the end, for rows that are the same on every worker.
        halfway, state: before `state_before`, and at the end.
    """

    names: list[str]
    losses: list[float]
    norms: list[float | None]
    outputs: Tensor
    halfway: dict[str, Any] | None
    state: dict[str, Any]


class Broken(Exception):
    """A worker failed because it was told to."""


def warm_up() -> None:
    """Have torch import what it puts off, and find the plugins, so that no worker has to. Starts no thread."""
    Plan(steps=()).optimizer.build([nn.Parameter(torch.zeros(1))], 1.0).zero_grad()
    registry()


def as_worker(name: str, options: StrategyOptions, device: str, task: Callable[[Strategy], Any]) -> Any:
    """Join the group that the environment names, do `task` and leave."""
    place = torch.device(device, int(os.environ["LOCAL_RANK"])) if device == "cuda" else torch.device(device)
    strategy: Strategy = registry().implementation("strategy", name)(options, place)
    strategy.stop()  # which does not mind that nothing was started
    strategy.start()
    result = task(strategy)
    strategy.stop()
    return result


def batch(step: int, rows: int) -> dict[str, Tensor]:
    """The rows of a step."""
    random = torch.Generator().manual_seed(1000 + step)
    return {
        "x": torch.randn(rows, INPUTS, generator=random),
        "label": torch.randint(CLASSES, (rows,), generator=random),
        "branch": torch.full((rows,), step % 2),
    }


def share(columns: dict[str, Tensor], strategy: Strategy) -> dict[str, Tensor]:
    """A worker's rows of a batch, on its device; there may be none."""
    plan = BatchPlan(batch_size=1, rank=strategy.rank, world_size=strategy.world_size)
    rows = plan.share(len(columns["x"]))
    return {name: column[rows].to(strategy.device) for name, column in columns.items()}


def train(strategy: Strategy, plan: Plan) -> Trained:
    """Train as the worker that `strategy`, which has started, is."""
    torch.manual_seed(plan.seed)
    network = plan.network().to(strategy.device)

    def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return plan.optimizer.build(parameters, 1.0)  # the rate is set at each step

    strategy.prepare(network, make_optimizer)
    if plan.state is not None:
        strategy.load(plan.state if strategy.rank == 0 else {"model": {}, "optimizer": {}})
    halfway = None
    losses, norms = [], []
    for number, step in enumerate(plan.steps, plan.first):
        if number == plan.state_before:
            halfway = strategy.state()
        if plan.evaluate:
            _infer(strategy, share(batch(number, 1 + number % 3), strategy))
        broken = plan.faulty if strategy.rank == strategy.world_size - 1 and step is plan.steps[-1] else None
        for group in strategy.optimizer.param_groups:
            group["lr"] = step.rate
        losses.append(_step(strategy, step, batch(number, step.rows), broken))
        norm = strategy.step(step.max_norm)
        norms.append(None if norm is None else float(norm))
    outputs = _infer(strategy, {name: c.to(strategy.device) for name, c in batch(PROBE_STEP, PROBE_ROWS).items()})
    return Trained(
        names=[name for name, _ in strategy.module.named_parameters()],
        losses=[float(loss) for loss in losses],
        norms=norms,
        outputs=outputs.cpu(),
        halfway=halfway,
        state=strategy.state(),
    )


def _step(strategy: Strategy, step: Step, columns: dict[str, Tensor], faulty: str | None) -> Tensor:
    """Forward and backward of one step; returns its loss, summed over workers."""
    mine = share(columns, strategy)
    rows = len(mine["x"])
    total = torch.zeros((), dtype=torch.float64, device=strategy.device)
    for index in range(step.parts):
        part = slice(rows * index // step.parts, rows * (index + 1) // step.parts)
        with strategy.microbatch(last=index == step.parts - 1):
            outputs = strategy.model({name: column[part] for name, column in mine.items()})
            if faulty == "raises":
                raise Broken
            if faulty == "sleeps":
                time.sleep(3600)
            loss = F.cross_entropy(outputs["label"].float(), mine["label"][part], reduction="sum") / step.rows
            total += loss.detach()
            strategy.backward(loss)
    return strategy.sum(total)


def _infer(strategy: Strategy, columns: dict[str, Tensor]) -> Tensor:
    """As evaluation does it: every worker calls the model equally often, some with no rows."""
    strategy.model.eval()
    with torch.inference_mode():
        outputs: Tensor = strategy.model(columns)["label"].float().clone()
    strategy.model.train()
    return outputs


TENSORS: list[Tensor] = [
    tensor
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8)
    for tensor in (
        torch.tensor(5, dtype=dtype),
        torch.zeros(0, dtype=dtype),
        torch.zeros(0, 3, dtype=dtype),
        torch.arange(6, dtype=dtype).reshape(2, 3),
    )
]
"""What is exchanged: each type that core sends, as a scalar, without elements and with several dimensions."""

LARGE = torch.tensor([2**40 + 1, -(2**53) - 1])
"""Integers that lose their last bit where they travel as floats."""


def exchange(strategy: Strategy) -> list[tuple[Tensor, Tensor]]:
    """The sum over workers of each tensor of `TENSORS` and `LARGE` times (rank + 1), and worker 0's of them."""

    def mine(tensor: Tensor) -> Tensor:
        return (tensor * (strategy.rank + 1)).to(strategy.device)

    return [(strategy.sum(mine(tensor)).cpu(), strategy.broadcast(mine(tensor)).cpu()) for tensor in [*TENSORS, LARGE]]


def regroup(strategy: Strategy) -> list[float]:
    """Leave the group and form another at the same address, a few times, one or the other worker in a hurry."""
    sums = []
    for number in range(4):
        sums.append(float(strategy.sum(torch.ones((), device=strategy.device))))
        if number % 2 == strategy.rank:
            time.sleep(0.1)
        strategy.stop()
        if number % 3 == strategy.rank:
            time.sleep(0.1)
        strategy.start()
    return sums
