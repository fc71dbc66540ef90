"""The conformance kit of training strategies.

A plugin's tests subclass `StrategyConformance`, name the strategy, and pytest does the rest::

    from core.testing.strategy import StrategyConformance

    class TestMine(StrategyConformance):
        strategy = "mine"
        options = {"bucket_cap_mb": 1}

Each test trains a small network in real worker processes, which get the variables of a group (RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and nothing else, and compares every number with what core's
strategy of a single process gives for the same rows. A right strategy passes all; what a failing test is about is in
its name. Workers that hang are ended, and what they printed is quoted.
"""

from __future__ import annotations

import functools
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import torch
from torch import Tensor

from core.config.structure import structure
from core.registry import registry
from core.specs import GroupOptions, StrategyOptions
from core.strategy import Strategy
from core.testing.training import (
    LARGE,
    TENSORS,
    Branching,
    Frozen,
    Plain,
    Plan,
    Step,
    Tied,
    Trained,
    as_worker,
    exchange,
    regroup,
    train,
)
from core.testing.workers import Ending, Launcher
from core.training.optimizers import AdamW

FAULT_TIMEOUT_S = 4.0
FAULT_MARGIN_S = 10.0
"""How much longer than its `timeout_s` a worker may take to notice that another is gone."""

_ADAMW = AdamW(weight_decay=0.1)
_HALF = 6
CURVE = Plan(
    optimizer=_ADAMW,
    steps=(
        Step(rows=8, rate=0.02, max_norm=0.4),
        Step(rows=7, rate=0.02, parts=2),
        Step(rows=1, rate=0.02, parts=2, max_norm=100.0),
        Step(rows=8, rate=0.03, parts=3, max_norm=0.4),
        Step(rows=5, rate=0.03),
        Step(rows=8, rate=0.01, parts=5, max_norm=0.2),
    )
    * 2,
    state_before=_HALF,
    evaluate=True,
)
"""Everything together: uneven shares, shares and micro-batches without rows, clipping now and then, changing rates."""


class StrategyConformance:
    """Subclass it, under a name that pytest collects.

    Attributes:
        strategy: the word a config uses.
        options: of the strategy, as a config spells them.
        world_sizes: the numbers of workers to try.
        device: ``cpu``, or ``cuda`` with a GPU for each worker.
        tolerance: the largest difference of a weight, a loss or a norm from the single process's. All are of the
            order of 1; the default is for fp32.
        unused_parameters: whether a step may leave parameters without a gradient, the same ones on each worker.
        limit_s: seconds that a group of workers may take; what takes longer hangs.
    """

    strategy: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    world_sizes: ClassVar[Sequence[int]] = (1, 2)
    device: ClassVar[str] = "cpu"
    tolerance: ClassVar[float] = 2e-5
    unused_parameters: ClassVar[bool] = False
    limit_s: ClassVar[float] = 90.0

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "world_size" in metafunc.fixturenames:
            metafunc.parametrize("world_size", self.world_sizes, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def launcher(cls) -> Iterator[Launcher]:
        with Launcher(registry().spec("strategy", cls.strategy).implementation.partition(":")[0]) as launcher:
            yield launcher

    @pytest.fixture(scope="class")
    @classmethod
    def curve(cls, launcher: Launcher, world_size: int, tmp_path_factory: pytest.TempPathFactory) -> list[Trained]:
        """A run of everything together, as each worker saw it."""
        return cls.run(launcher, world_size, tmp_path_factory.mktemp("curve"), CURVE)

    def test_gradients_are_summed_over_workers(self, launcher: Launcher, world_size: int, tmp_path: Path) -> None:
        steps = [Step(rows=rows) for rows in (8, 5, 1, 8)]
        (found, *_) = self.run(launcher, world_size, tmp_path, Plan(steps=steps))

        averaged = [attrs.evolve(step, rate=step.rate / world_size) for step in steps]
        mistakes = {
            "gradients were averaged over workers": self.expected(Plan(steps=averaged)),
            "gradients were not exchanged": self.expected(Plan(steps=steps), world_size),
        }
        self.assert_equal(found.state["model"], self.expected(Plan(steps=steps)).state["model"], mistakes)

    def test_micro_batches_add_up_to_one_exchange(self, launcher: Launcher, world_size: int, tmp_path: Path) -> None:
        steps = [Step(rows=rows, parts=3) for rows in (8, 5, 1, 8)]  # some workers and parts have no rows
        (found, *_) = self.run(launcher, world_size, tmp_path, Plan(steps=steps))

        self.assert_equal(found.state["model"], self.expected(Plan(steps=steps)).state["model"])

    def test_gradients_are_clipped_by_their_global_norm(
        self, launcher: Launcher, world_size: int, tmp_path: Path
    ) -> None:
        plan = Plan(steps=[Step(max_norm=norm, rate=0.5) for norm in (0.2, None, 1000.0, 0.3)])
        (found, *others) = self.run(launcher, world_size, tmp_path, plan)

        expected = self.expected(plan)
        for worker in (found, *others):
            self.assert_close(worker.norms, expected.norms, "the norms that `step` returned")
        self.assert_equal(found.state["model"], expected.state["model"])

    def test_the_rate_is_what_param_groups_say_at_each_step(
        self, launcher: Launcher, world_size: int, tmp_path: Path
    ) -> None:
        steps = [Step(rate=0.5), Step(rate=0.0), Step(rate=0.05)]
        (found, *_) = self.run(launcher, world_size, tmp_path, Plan(steps=steps, state_before=2))

        expected = self.expected(Plan(steps=steps, state_before=2))
        assert found.halfway is not None
        assert expected.halfway is not None
        self.assert_equal(found.halfway["model"], expected.halfway["model"])
        self.assert_equal(found.state["model"], expected.state["model"])

    def test_a_run_has_the_losses_and_norms_of_a_single_process(self, curve: list[Trained]) -> None:
        expected = self.expected(CURVE)

        for worker in curve:
            self.assert_close(worker.losses, expected.losses, "the losses of the steps")
            self.assert_close(worker.norms, expected.norms, "the norms that `step` returned")

    def test_a_run_ends_with_the_weights_of_a_single_process(self, curve: list[Trained]) -> None:
        expected = self.expected(CURVE)

        self.assert_equal(curve[0].state["model"], expected.state["model"])

    def test_every_worker_ends_with_the_same_weights(self, curve: list[Trained]) -> None:
        for rank, worker in enumerate(curve):
            assert worker.outputs.equal(curve[0].outputs), f"worker {rank} computes otherwise than worker 0"

    def test_state_is_whole_named_and_on_cpu(self, curve: list[Trained]) -> None:
        found, expected = curve[0].state, self.expected(CURVE).state

        _assert_same(
            {name: _form(value) for name, value in found["model"].items()},
            {name: _form(value) for name, value in expected["model"].items()},
            "the weights",
        )
        _assert_same(
            {name: _forms(entry) for name, entry in found["optimizer"]["state"].items()},
            {name: _forms(entry) for name, entry in expected["optimizer"]["state"].items()},
            "the optimiser's state",
        )
        (group,) = found["optimizer"]["param_groups"]
        _assert_same(group["params"], expected["optimizer"]["param_groups"][0]["params"], "params of the only group")
        json.dumps(group)  # which is how a checkpoint keeps it

    def test_module_has_the_names_of_the_state(self, curve: list[Trained]) -> None:
        for worker in curve:
            _assert_same(worker.names, [name for name, _ in Plain().named_parameters()], "parameters of `module`")

    def test_state_is_a_copy(self, curve: list[Trained]) -> None:
        """What was taken halfway is not changed by the steps after it."""
        expected = self.expected(CURVE).halfway

        assert curve[0].halfway is not None
        assert expected is not None
        self.assert_equal(curve[0].halfway["model"], expected["model"])
        self.assert_equal(_flat(curve[0].halfway), _flat(expected))

    def test_a_single_process_continues_its_state(self, curve: list[Trained]) -> None:
        rest = _after_halfway(CURVE, curve[0].halfway)

        self.assert_continued(self.expected(rest))

    def test_it_continues_the_state_of_a_single_process(
        self, launcher: Launcher, world_size: int, tmp_path: Path
    ) -> None:
        taken = self.expected(CURVE).halfway
        rest = _after_halfway(CURVE, taken)
        workers = self.run(launcher, world_size, tmp_path, rest)

        for rank, worker in enumerate(workers):
            assert worker.outputs.equal(workers[0].outputs), f"worker {rank} did not load what worker 0 did"
        self.assert_continued(workers[0])

    def test_tied_parameters_stay_one(self, launcher: Launcher, world_size: int, tmp_path: Path) -> None:
        self.check_network(launcher, world_size, tmp_path, Tied)

    def test_frozen_parameters_and_buffers_stay_as_they_are(
        self, launcher: Launcher, world_size: int, tmp_path: Path
    ) -> None:
        self.check_network(launcher, world_size, tmp_path, Frozen)

    def test_parameters_without_a_gradient_are_left_alone(
        self, launcher: Launcher, world_size: int, tmp_path: Path
    ) -> None:
        if not self.unused_parameters:
            pytest.skip("these options do not promise it")
        self.check_network(launcher, world_size, tmp_path, Branching)

    def test_sum_and_broadcast(self, launcher: Launcher, world_size: int, tmp_path: Path) -> None:
        for worker in self.results(launcher, world_size, tmp_path, exchange):
            for tensor, (summed, sent) in zip([*TENSORS, LARGE], worker, strict=True):
                whole = tensor * (world_size * (world_size + 1) // 2)
                for name, given in (("sum", summed), ("broadcast", sent)):
                    _assert_same(_form(given), _form(tensor), f"shape, type and place of what {name} gives")
                assert summed.equal(whole), f"sum of {tensor.dtype}: {summed.tolist()}, not {whole.tolist()}"
                assert sent.equal(tensor), f"broadcast of {tensor.dtype}: {sent.tolist()}, not {tensor.tolist()}"

    def test_its_workers_can_form_another_group(self, launcher: Launcher, world_size: int, tmp_path: Path) -> None:
        for sums in self.results(launcher, world_size, tmp_path, regroup):
            _assert_same(sums, [world_size] * len(sums), "sums of ones in one group after the other")

    def test_a_worker_that_has_left_its_group_ends(self, launcher: Launcher, world_size: int, tmp_path: Path) -> None:
        work = self.work(functools.partial(train, plan=Plan(steps=[Step()])))

        for ending in launcher.launch(work, world_size, tmp_path, limit_s=self.limit_s, teardown=True):
            assert ending.status == 0, ending.log

    @pytest.mark.parametrize("how", ["raises", "sleeps"])
    def test_no_worker_waits_longer_than_its_timeout(self, launcher: Launcher, tmp_path: Path, how: Any) -> None:
        world_size = max(self.world_sizes)
        if world_size == 1 or not issubclass(registry().spec("strategy", self.strategy).options, GroupOptions):
            pytest.skip("there is nobody to wait for")
        plan = Plan(steps=[Step(), Step()], faulty=how)
        work = self.work(functools.partial(train, plan=plan), timeout_s=FAULT_TIMEOUT_S)
        allowed = FAULT_TIMEOUT_S + FAULT_MARGIN_S

        # Who raises ends at once, and the others have `allowed` from then; who sleeps is killed soon after they failed.
        grace_s = allowed if how == "raises" else 1.0
        endings = launcher.launch(work, world_size, tmp_path, limit_s=allowed + FAULT_MARGIN_S, grace_s=grace_s)

        if how == "raises":
            assert "Broken" in endings[-1].log
        for rank, ending in enumerate(endings[:-1]):
            assert ending.status, f"worker {rank} went on without worker {world_size - 1}"
            assert not _was_ended(ending), f"worker {rank} was still waiting after {ending.seconds:.0f} s"

    def check_network(self, launcher: Launcher, world_size: int, folder: Path, network: type[torch.nn.Module]) -> None:
        """Train `network`, halfway under each strategy in turn, and compare with a single process."""
        whole = Plan(
            network=network,
            optimizer=_ADAMW,
            steps=[Step(rows=rows, rate=0.05, max_norm=1.0) for rows in (8, 5, 4, 8)],
            state_before=2,
            evaluate=network is not Branching,
        )
        (found, *_) = self.run(launcher, world_size, folder / "whole", whole)
        expected = self.expected(whole)
        _assert_same(found.names, expected.names, "parameters of `module`")
        self.assert_equal(_flat(found.state), _flat(expected.state))
        self.assert_close(found.losses, expected.losses, "the losses of the steps")
        self.assert_close(found.norms, expected.norms, "the norms that `step` returned")

        rest = _after_halfway(whole, expected.halfway)
        (continued, *_) = self.run(launcher, world_size, folder / "rest", rest)
        self.assert_equal(_flat(continued.state), _flat(expected.state))
        self.assert_equal(_flat(self.expected(_after_halfway(whole, found.halfway)).state), _flat(expected.state))

    def assert_continued(self, found: Trained) -> None:
        """`found` is the second half of the run that nothing interrupted."""
        whole = self.expected(CURVE)
        self.assert_close(found.losses, whole.losses[_HALF:], "the losses of the steps after it continued")
        self.assert_equal(_flat(found.state), _flat(whole.state))

    def assert_equal(
        self, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], mistakes: Mapping[str, Trained] | None = None
    ) -> None:
        """Weights are equal within `tolerance`; if not, the mistake that would give them is named."""
        try:
            self.assert_close(found, expected, "away from the values of a single process")
        except AssertionError:
            for mistake, trained in (mistakes or {}).items():
                if self.is_close(found, trained.state["model"]):
                    raise AssertionError(mistake) from None
            raise

    def is_close(self, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
        try:
            self.assert_close(found, expected, "")
        except AssertionError:
            return False
        return True

    def assert_close(self, found: Any, expected: Any, what: str) -> None:
        """Numbers or tensors are equal within `tolerance`."""
        torch.testing.assert_close(
            found, expected, rtol=0, atol=self.tolerance, check_dtype=False, msg=lambda told: f"{what}: {told}"
        )

    @classmethod
    def expected(cls, plan: Plan, world_size: int = 1) -> Trained:
        """What core's own strategy gives in this process; with `world_size`, for worker 0's rows alone."""
        alone = Strategy(StrategyOptions(), torch.device("cpu"))
        alone.world_size = world_size
        return train(alone, plan)

    @classmethod
    def run(cls, launcher: Launcher, world_size: int, folder: Path, plan: Plan) -> list[Trained]:
        """What each worker saw of a run."""
        return cls.results(launcher, world_size, folder, functools.partial(train, plan=plan))

    @classmethod
    def results(cls, launcher: Launcher, world_size: int, folder: Path, task: Callable[[Strategy], Any]) -> list[Any]:
        """What `task` returns in each worker."""
        return launcher.results(cls.work(task), world_size, folder, limit_s=cls.limit_s)

    @classmethod
    def work(cls, task: Callable[[Strategy], Any], **options: Any) -> Callable[[], Any]:
        """What a worker does to do `task`; `options` are added to the strategy's."""
        wanted: type[StrategyOptions] = registry().spec("strategy", cls.strategy).options
        made, problems = structure({**cls.options, **options}, wanted)
        assert made is not None, problems
        return functools.partial(as_worker, cls.strategy, made, cls.device, task)


def _after_halfway(plan: Plan, state: dict[str, Any] | None) -> Plan:
    """The rest of a run from `state` on, in a network that starts with other weights."""
    assert plan.state_before is not None
    steps = plan.steps[plan.state_before :]
    return attrs.evolve(plan, steps=steps, first=plan.state_before, seed=1, state=state, state_before=None)


def _was_ended(ending: Ending) -> bool:
    return ending.status == -signal.SIGABRT and "Fatal Python error: Aborted" in ending.log


def _assert_same(found: object, expected: object, what: str) -> None:
    # pytest explains the assertions of test modules alone, and this is none.
    assert found == expected, f"{what}: {found}, not {expected}"


def _form(tensor: Any) -> tuple[Any, ...]:
    assert type(tensor) is Tensor, f"{type(tensor).__name__} is not a plain tensor"
    return tuple(tensor.shape), tensor.dtype, tensor.device.type


def _forms(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A number may be kept as one or as a tensor."""
    return {name: _form(value) if isinstance(value, Tensor) and value.ndim else () for name, value in entry.items()}


def _flat(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Weights, and what the optimiser keeps of each parameter."""
    kept = {
        f"{name} {key}": torch.as_tensor(value)
        for name, entry in state["optimizer"]["state"].items()
        for key, value in entry.items()
    }
    return {**state["model"], **kept}
