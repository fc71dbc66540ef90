"""The conformance kit of strategies passes a right one, and tells what is wrong with each wrong one."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar

import pytest

import core.testing.strategy
from core.registry import registry
from core.testing.strategy import CURVE, StrategyConformance
from core.testing.workers import Launcher

DECLARATION = """
from core import StrategySpec, hookimpl
from faulty import FaultyOptions

@hookimpl
def register_strategy():
    yield StrategySpec(name="faulty", summary="For a test.", implementation="faulty:Faulty", options=FaultyOptions)
"""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The strategy as a third party's distribution, here and in the workers."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(Path(__file__).parent / "faulty.py", site)
    (site / "faulty_declaration.py").write_text(DECLARATION)
    info = site / "core_faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: core-faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[core.plugins]\nfaulty = faulty_declaration\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
        registry.cache_clear()
        yield
    registry.cache_clear()
    for module in ("faulty", "faulty_declaration"):
        sys.modules.pop(module, None)


@pytest.fixture(scope="module")
def workers(installed):
    with Launcher("faulty") as launcher:
        yield launcher


class TestRight(StrategyConformance):
    strategy = "faulty"
    unused_parameters = True


@pytest.mark.parametrize(
    ("fault", "test", "reason"),
    [
        ("averages", "test_gradients_are_summed_over_workers", "gradients were averaged over workers"),
        ("does not exchange", "test_gradients_are_summed_over_workers", "gradients were not exchanged"),
        ("exchanges each micro-batch", "test_micro_batches_add_up_to_one_exchange", "away from"),
        ("keeps the last micro-batch alone", "test_micro_batches_add_up_to_one_exchange", "away from"),
        ("clips before the exchange", "test_gradients_are_clipped_by_their_global_norm", "the norms"),
        ("keeps its own rate", "test_the_rate_is_what_param_groups_say_at_each_step", "away from"),
        ("does not exchange", "test_every_worker_ends_with_the_same_weights", "worker 1 computes otherwise"),
        ("does not exchange", "test_a_run_ends_with_the_weights_of_a_single_process", "away from"),
        ("clips before the exchange", "test_a_run_has_the_losses_and_norms_of_a_single_process", "the losses"),
        ("keeps a shard", "test_state_is_whole_named_and_on_cpu", "the weights"),
        ("numbers the optimiser's state", "test_state_is_whole_named_and_on_cpu", "the optimiser's state"),
        ("forgets the optimiser's state", "test_state_is_whole_named_and_on_cpu", "the optimiser's state"),
        ("shows live weights", "test_state_is_a_copy", "away from"),
        ("loads on worker 0 alone", "test_it_continues_the_state_of_a_single_process", "worker 1 did not load"),
        ("forgets the optimiser on load", "test_it_continues_the_state_of_a_single_process", "the losses"),
        ("forgets the optimiser's state", "test_a_single_process_continues_its_state", "the losses"),
        ("unties parameters", "test_tied_parameters_stay_one", "second.weight"),
        ("lets all parameters learn", "test_frozen_parameters_and_buffers_stay_as_they_are", "frozen.weight"),
        ("gives every parameter a gradient", "test_parameters_without_a_gradient_are_left_alone", "away from"),
        ("averages sums", "test_sum_and_broadcast", "sum of"),
        ("sums as floats", "test_sum_and_broadcast", "sum of torch.int64"),
        ("sends the last worker's", "test_sum_and_broadcast", "broadcast of"),
    ],
)  # fmt: skip
def test_a_fault_is_found_and_named(workers, tmp_path, fault, test, reason):
    assert_found(workers, tmp_path, fault, test, reason)


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("exchanges each micro-batch", "test_gradients_are_summed_over_workers"),
        ("clips before the exchange", "test_micro_batches_add_up_to_one_exchange"),
        ("averages sums", "test_gradients_are_summed_over_workers"),
        ("loads on worker 0 alone", "test_state_is_whole_named_and_on_cpu"),
        ("forgets the optimiser on load", "test_a_run_ends_with_the_weights_of_a_single_process"),
    ],
)
def test_a_fault_fails_no_test_of_something_else(workers, tmp_path, fault, test):
    run(workers, tmp_path, fault, test)


def test_waiting_for_ever_is_found_and_ended(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(core.testing.strategy, "FAULT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(core.testing.strategy, "FAULT_MARGIN_S", 2.0)
    test = "test_no_worker_waits_longer_than_its_timeout"
    assert_found(workers, tmp_path, "waits for ever", test, "worker 0 was still waiting", how="sleeps")


def test_a_collective_that_not_all_take_part_in_is_found_and_ended(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(StrategyConformance, "limit_s", 5.0)
    test = "test_micro_batches_add_up_to_one_exchange"
    assert_found(workers, tmp_path, "exchanges once more on worker 0", test, "did not end in 5 s|Connection|failed")


def assert_found(workers, folder, fault, test, reason, **arguments):
    with pytest.raises(AssertionError, match=reason):
        run(workers, folder, fault, test, **arguments)


def run(workers, folder, fault, test, **arguments):
    """One test of the kit, on two workers, as pytest would call it."""

    class Kit(StrategyConformance):
        strategy = "faulty"
        options: ClassVar = {"fault": fault}
        unused_parameters = True

    method = getattr(Kit(), test)
    wanted = inspect.signature(method).parameters
    known = {"launcher": workers, "world_size": 2, "tmp_path": folder, **arguments}
    if "curve" in wanted:
        known["curve"] = Kit.run(workers, 2, folder, CURVE)
    method(**{name: known[name] for name in wanted})
