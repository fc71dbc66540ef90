"""What each option does to torch's wrapper, and what is left when a worker leaves its group."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from torch import nn

from core.strategy import group_store
from core_ddp import DDPOptions
from core_ddp.strategy import DDP


@pytest.fixture
def prepared(monkeypatch):
    """A strategy alone in its group, by options."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    started = []

    def prepare(**options):
        strategy = DDP(DDPOptions(**options), torch.device("cpu"))
        strategy.start()
        started.append(strategy)
        layers = nn.Sequential(*[nn.Linear(400, 400, bias=False) for _ in range(4)])  # of 0.64 MB each
        strategy.prepare(layers, torch.optim.SGD)
        return strategy

    yield prepare
    for strategy in started:
        strategy.stop()


def backward(strategy: DDP) -> None:
    with strategy.microbatch(last=True):
        strategy.backward(strategy.model(torch.ones(2, 400)).sum())


def sent(bucket_sizes, bucket):  # torch compares the annotations of a hook, which here would be text
    bucket_sizes.append(bucket.buffer().nbytes)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


@pytest.mark.parametrize(("cap", "messages"), [(1, 2), (100, 1)])
def test_bucket_cap_mb_decides_how_many_messages_carry_the_gradients(prepared, cap, messages):
    strategy = prepared(bucket_cap_mb=cap)
    sizes: list[int] = []
    strategy.model.register_comm_hook(sizes, sent)
    backward(strategy)  # in which torch learns the order of gradients, and cuts them anew
    sizes.clear()

    backward(strategy)

    assert sizes == [4 * 640_000 // messages] * messages


@pytest.mark.parametrize("view", [True, False])
def test_gradient_as_bucket_view_keeps_gradients_in_the_buckets(prepared, view):
    strategy = prepared(gradient_as_bucket_view=view)

    backward(strategy)

    storages = {parameter.grad.untyped_storage().data_ptr() for parameter in strategy.module.parameters()}
    assert (len(storages) < 4) == view


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}])
def test_promises_about_the_graph_reach_torch(prepared, options):
    strategy = prepared(**options)

    assert strategy.model.find_unused_parameters == options.get("find_unused_parameters", False)
    assert strategy.model.static_graph == options.get("static_graph", False)


def test_the_group_is_gone_when_a_worker_has_left_it_though_the_replica_is_not(prepared):
    group_store(60.0)  # which stays for the next group, with the thread that serves it
    before = threads()
    strategy = prepared()
    backward(strategy)
    assert threads() > before, "gloo has a thread for its connections"

    strategy.stop()

    assert strategy.model is not None
    assert threads() == before


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
