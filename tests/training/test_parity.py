"""The same config gives the same numbers on one process and on several."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file


@pytest.fixture
def alone(train, config):
    """The single process every group of workers must agree with."""
    config["trainer"] |= {"gradient_clipping": {"clipglobalnorm": 0.5}}
    return train(config)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ddp_equals_a_single_process_step_by_step(train, config, alone, workers):
    # given: 129 training rows in batches of 32, so the last batch has fewer rows than there are workers
    config["backend"]["trainer"] = {"strategy": "ddp", "num_workers": workers}
    # when
    run, losses = train(config)
    # then
    expected_run, expected = alone
    assert len(losses) == 3 * 5
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, tensor in load_file(expected_run.model_path / "model.safetensors").items():
        torch.testing.assert_close(
            load_file(run.model_path / "model.safetensors")[name], tensor, rtol=1e-4, atol=1e-6, msg=name
        )
    assert run.metrics("test")["label"] == pytest.approx(expected_run.metrics("test")["label"], rel=1e-5)


@pytest.mark.parametrize(
    "cut",
    [{"gradient_accumulation_steps": 3}, {"max_rows_per_device": 5}, {"effective_batch_size": 32, "batch_size": 8}],
)
def test_cutting_a_batch_changes_nothing(train, config, cut):
    _, expected = train(config)
    config["trainer"] |= cut
    assert train(config)[1] == pytest.approx(expected, rel=1e-5)


def test_cut_batches_on_two_workers_change_nothing(train, config):
    _, expected = train(config)
    config["trainer"] |= {"max_rows_per_device": 7}
    config["backend"]["trainer"] = {"num_workers": 2}
    assert train(config)[1] == pytest.approx(expected, rel=1e-5)


def test_batch_size_per_worker_counts_rows_of_each_worker(train, config):
    _, expected = train(config)
    del config["trainer"]["batch_size"]
    config["trainer"]["batch_size_per_worker"] = 16
    config["backend"]["trainer"] = {"num_workers": 2}
    assert train(config)[1] == pytest.approx(expected, rel=1e-5)


def test_the_seed_decides_everything(train, config):
    config["combiner"]["dropout"] = 0.3
    first, again, other = (train(config, random_seed=seed)[1] for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_windows_change_the_order_of_rows_and_streaming_does_not(train, config):
    config["trainer"]["epochs"] = 1
    orders = {}
    for executed in (True, False):
        config["backend"]["loader"] = {"fully_executed": executed}
        orders[executed] = train(config)[1]
    assert orders[True] == orders[False]


def test_without_shuffling_every_epoch_has_the_order_of_the_file(train, config):
    config["trainer"] |= {"should_shuffle": False, "epochs": 1}
    assert train(config, random_seed=1)[0].training_statistics  # the seed still draws the weights
    config["trainer"]["learning_rate"] = 1e-12
    config["trainer"]["epochs"] = 2
    _, losses = train(config)
    assert losses[:5] == pytest.approx(losses[5:], rel=1e-6)
