"""Whole training runs in shards, against a single process."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

import core
from core.errors import ConfigError

pytestmark = pytest.mark.slow


def sharded(config, workers=2, **options):
    config["backend"]["trainer"] = {"num_workers": workers, "strategy": {"type": "fsdp", **options}}
    return config


def weights(run):
    return load_file(run.model_path / "model.safetensors")


def assert_equal_runs(found, expected, rel=1e-5):
    (run, losses), (expected_run, expected_losses) = found, expected
    assert losses == pytest.approx(expected_losses, rel=rel)
    for name, tensor in weights(expected_run).items():
        torch.testing.assert_close(weights(run)[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
    assert run.metrics("test")["label"] == pytest.approx(expected_run.metrics("test")["label"], rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_num_params": 30, "reshard_after_forward": True},
        {"transformer_layer_cls_to_wrap": ["FullyConnected"], "reshard_after_forward": False, "cpu_offload": True},
    ],
)
def test_two_workers_equal_a_single_process(train, config, options):
    config["trainer"] |= {"regularization_type": "l1_l2", "regularization_lambda": 0.01, "max_rows_per_device": 5}

    expected = train(config)

    assert_equal_runs(train(sharded(config, **options)), expected)


@pytest.mark.parametrize("encoder", [{"type": "rnn"}, {"type": "transformer", "dropout": 0.0}])
def test_encoders_of_text_can_be_cut_into_small_blocks(train, config, encoder):
    config["input_features"].append({"name": "text", "type": "text", "encoder": encoder})
    config["combiner"] = {"type": "transformer", "hidden_size": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0}
    config["trainer"]["epochs"] = 1
    _, expected = train(config)

    _, losses = train(sharded(config, min_num_params=50))

    # Not the weights: attention ignores the bias of its keys, and Adam follows the rounding of a gradient of 0.
    assert losses == pytest.approx(expected, rel=1e-4)


def test_the_saved_model_gives_what_evaluation_gave_on_every_worker(frame, config, tmp_path):
    # given: statistics of batches, of which each worker sees others
    config["combiner"]["norm"] = "batch"

    run, metrics, _ = core.Model(sharded(config)).experiment(dataset=frame, output_directory=tmp_path)

    assert metrics["label"]["loss"] == pytest.approx(run.metrics("test")["label"]["loss"], rel=1e-5)


def test_autocast_works_on_gathered_parameters(train, config):
    config["trainer"]["epochs"] = 1
    _, expected = train(config)

    config["trainer"]["use_mixed_precision"] = True
    _, losses = train(sharded(config))

    assert losses == pytest.approx(expected, rel=2e-2)


def test_mixed_precision_computes_in_the_type_asked_for(train, config):
    _, exact = train(sharded(config))
    types = {"param_dtype": "bfloat16", "reduce_dtype": "float32", "output_dtype": "float32"}

    run, losses = train(sharded(config, mixed_precision=types))

    assert losses != pytest.approx(exact, rel=1e-5)
    assert losses == pytest.approx(exact, rel=3e-2)
    assert all(tensor.dtype == torch.float32 for tensor in weights(run).values())


def test_a_number_of_workers_that_does_not_fit_is_refused(train, config):
    with pytest.raises(ConfigError, match="cannot be kept spread") as raised:
        train(sharded(config, reshard_after_forward=2))

    assert raised.value.path == "backend.trainer.strategy.reshard_after_forward"


def test_a_class_that_the_network_lacks_is_refused(train, config):
    with pytest.raises(ConfigError, match="did you mean 'FullyConnected'") as raised:
        train(sharded(config, transformer_layer_cls_to_wrap=["FullConnected"]))

    assert raised.value.found == "FullConnected"
