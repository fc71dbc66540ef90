"""What is Horovod's own, beyond what every strategy must do."""

from __future__ import annotations

import functools
import re
import signal
import textwrap

import pytest

from core.testing.strategy import StrategyConformance
from core.testing.training import Plan, Step, Trained
from core.testing.workers import Ending, Launcher
from core.training.optimizers import AdamW

pytest.importorskip("horovod.torch", reason="Horovod is not compiled: python -m core_horovod.build")

STEPS = [Step(rows=8, parts=2, rate=0.02, max_norm=0.5), Step(rows=5, rate=0.02), Step(rows=1, rate=0.02)] * 2
PLAN = Plan(steps=STEPS, optimizer=AdamW(weight_decay=0.1), state_before=3)

PREPARATION = """
import os, signal, time, torch
from torch import nn
from core_horovod import HorovodOptions
from core_horovod.strategy import Horovod

def joined(**options):
    strategy = Horovod(HorovodOptions(**options), torch.device("cpu"))
    strategy.start()
    return strategy

def one_step(strategy, model):
    strategy.prepare(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    with strategy.microbatch(last=True):
        strategy.backward(model(torch.randn(4, 3)).square().sum())
    strategy.step()
"""


class Plain(StrategyConformance):
    strategy = "horovod"


class Compressed(Plain):
    options = {"compression": "fp16"}  # noqa: RUF012


class DDP(StrategyConformance):
    strategy = "ddp"


@pytest.fixture(scope="module")
def launcher():
    with Launcher("core_horovod.strategy") as launcher:
        yield launcher


@pytest.fixture
def run(launcher, tmp_path):
    """Run a program in two workers."""

    def run(program: str) -> list[Ending]:
        work = functools.partial(exec, PREPARATION + textwrap.dedent(program), {})
        return launcher.launch(work, 2, tmp_path / "workers", limit_s=60, grace_s=6)

    return run


@pytest.fixture
def finish(run):
    """Run a program in two workers to its end; what each printed."""

    def finish(program: str) -> list[str]:
        endings = run(program)
        assert not any(ending.status for ending in endings), "\n".join(ending.log for ending in endings)
        return [ending.log for ending in endings]

    return finish


def distance(found: Trained, expected: Trained) -> float:
    weights = expected.state["model"]
    return max(float((found.state["model"][name] - weights[name]).abs().max()) for name in weights)


def test_compressed_gradients_are_near_the_exact_ones(launcher, tmp_path):
    workers = Compressed.run(launcher, 2, tmp_path / "workers", PLAN)

    assert 1e-7 < distance(workers[0], Compressed.expected(PLAN)) < 2e-3
    assert workers[1].outputs.equal(workers[0].outputs)


@pytest.mark.parametrize(("first", "second"), [(DDP, Plain), (Plain, DDP)])
def test_ddp_and_horovod_continue_each_other(launcher, tmp_path, first, second):
    pytest.importorskip("core_ddp")
    (taken, _) = first.run(launcher, 2, tmp_path / "first", PLAN)

    rest = Plan(steps=STEPS[3:], first=3, seed=1, optimizer=PLAN.optimizer, state=taken.halfway)
    (continued, _) = second.run(launcher, 2, tmp_path / "second", rest)

    assert continued.losses == pytest.approx(Plain.expected(PLAN).losses[3:], abs=2e-5)
    assert distance(continued, Plain.expected(PLAN)) < 2e-5


def test_a_tensor_does_not_wait_for_the_cycle(finish):
    logs = finish(
        """
        strategy = joined(cycle_time_ms=500)
        started = time.monotonic()
        for _ in range(20):
            strategy.sum(torch.ones(1))
        print(time.monotonic() - started)
        strategy.stop()
        """
    )
    assert float(logs[0]) < 3, "20 cycles are 10 seconds"


@pytest.mark.parametrize(("option", "exchanges"), [("", 1), ("fusion_threshold_mb=0", 20)])
def test_gradients_are_sent_together_up_to_the_threshold(finish, tmp_path, option, exchanges):
    finish(
        f"""
        os.environ["HOROVOD_TIMELINE"] = "{tmp_path}/timeline.json"
        strategy = joined({option})
        one_step(strategy, nn.Sequential(*(nn.Linear(3, 3) for _ in range(10))))
        strategy.stop()
        """
    )
    names = set(re.findall(r"core\.gradients\.\d+", (tmp_path / "timeline.json").read_text()))
    assert len(names) == exchanges


def test_a_process_may_join_one_group_after_another(finish):
    logs = finish(
        """
        before = dict(os.environ)
        for round in range(3):
            strategy = joined()
            print(strategy.rank, strategy.world_size, strategy.sum(torch.tensor([1.0 + round])).item())
            strategy.stop()
            strategy.stop()
        assert os.environ == before
        """
    )
    for rank, log in enumerate(logs):
        assert log.splitlines() == [f"{rank} 2 {total}" for total in (2.0, 4.0, 6.0)]


@pytest.mark.parametrize(
    ("number", "limit_s", "hit"), [(signal.SIGKILL, 5, 0), (signal.SIGKILL, 5, 1), (signal.SIGSTOP, 10, 1)]
)
def test_a_worker_that_is_hit_ends_the_other(run, hit, number, limit_s):
    endings = run(
        f"""
        strategy = joined(timeout_s=4)
        try:
            for round in range(1000):
                if round == 100:
                    started = time.monotonic()
                    if strategy.rank == {hit}:
                        os.kill(os.getpid(), {int(number)})
                strategy.sum(torch.ones(1000))
        except Exception as error:
            print("\\n%s %s" % (type(error).__name__, time.monotonic() - started), end="\\n", flush=True)
            strategy.stop()
            print("has left")
            raise
        """
    )
    assert endings[1 - hit].status == 1, endings[1 - hit].log
    told = [line for line in endings[1 - hit].log.splitlines() if line.startswith(("HorovodInternal", "TimeoutE"))]
    assert float(told[0].split()[1]) < limit_s
    assert "has left" in endings[1 - hit].log


def test_tensors_of_a_state_may_have_any_type(finish):
    finish(
        """
        from core_horovod.objects import broadcast_object
        strategy = joined()
        whole = {"a": [torch.arange(3.0), torch.tensor(True), (torch.ones(0, 2, dtype=torch.bfloat16), "text")], "b": 1}
        value = broadcast_object(whole if strategy.rank == 0 else {}, strategy)
        assert value["b"] == 1 and value["a"][2][1] == "text"
        for found, expected in zip((*value["a"][:2], value["a"][2][0]), (*whole["a"][:2], whole["a"][2][0])):
            assert found.dtype == expected.dtype and found.equal(expected)
        strategy.stop()
        """
    )


def test_running_statistics_are_the_same_on_every_worker(finish):
    first, second = finish(
        """
        strategy = joined()
        torch.manual_seed(strategy.rank)
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        one_step(strategy, model)
        print([value.tolist() for value in model.state_dict().values()])
        strategy.stop()
        """
    )
    assert "[" in first
    assert first == second
