"""Whole training runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from core.errors import ConfigError
from core_deepspeed.library import get_accelerator

PLAIN = """
trainer:
  num_workers: 2
  strategy: deepspeed
"""
ZERO3 = """
trainer:
  num_workers: 2
  strategy:
    type: deepspeed
    zero_optimization:
      stage: 3
      offload_optimizer:
        device: cpu
        pin_memory: true
    bf16:
      enabled: true
"""


def strategy(stage: int, workers: int = 2, zero: Any = None, **sections: Any) -> dict[str, Any]:
    section = {"type": "deepspeed", "zero_optimization": {"stage": stage, **(zero or {})}, **sections}
    return {"trainer": {"strategy": section, "num_workers": workers}}


@pytest.mark.slow
def test_the_plainest_section_trains_as_a_single_process_does(train, capfd):
    expected_run, expected = train({})

    run, losses = train(yaml.safe_load(PLAIN))

    assert losses == pytest.approx(expected, rel=1e-6)
    assert run.metrics("test")["label"] == pytest.approx(expected_run.metrics("test")["label"], rel=1e-5)
    printed = "".join(capfd.readouterr())
    assert "deepspeed" not in printed.lower()


@pytest.mark.slow
def test_stage_3_in_bfloat16_with_offload_trains(train):
    expected_run, expected = train({})

    run, losses = train(yaml.safe_load(ZERO3))

    assert losses == pytest.approx(expected, rel=0.02)
    assert run.metrics("test")["label"]["loss"] == pytest.approx(
        expected_run.metrics("test")["label"]["loss"], rel=0.02
    )
    weights = load_file(run.model_path / "model.safetensors")
    shapes = {name: tensor.shape for name, tensor in load_file(expected_run.model_path / "model.safetensors").items()}
    assert {name: tensor.shape for name, tensor in weights.items()} == shapes
    assert all(tensor.dtype == torch.float32 for tensor in weights.values()), "not the copy that the optimiser updates"


@pytest.mark.slow
def test_a_penalty_on_divided_weights_is_that_of_a_single_process(train):
    penalty = {"regularization_type": "l1_l2", "regularization_lambda": 0.01, "gradient_accumulation_steps": 2}
    _, expected = train({}, trainer=penalty)

    _, losses = train(strategy(3, zero={"stage3_param_persistence_threshold": 0}), trainer=penalty)

    assert losses == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_every_kind_of_module_computes_in_bfloat16(train):
    encoders = {
        "rnn": {"type": "rnn", "cell_type": "gru"},
        "cnn": {"type": "parallel_cnn"},
        "attention": {"type": "transformer"},
    }
    texts = [{"name": n, "column": "words", "type": "text", "encoder": encoder} for n, encoder in encoders.items()]
    combiner = {"type": "concat", "num_fc_layers": 1, "output_size": 16, "norm": "batch"}
    section = strategy(3, 1, bf16={"enabled": True})

    run, losses = train(section, inputs=texts, combiner=combiner, trainer={"epochs": 1})

    assert losses
    assert all(math.isfinite(loss) for loss in losses)
    assert run.metrics("test")


@pytest.mark.slow
def test_mixed_precision_of_the_trainer_computes_in_bfloat16(train):
    _, expected = train({}, trainer={"use_mixed_precision": True, "epochs": 1})

    _, losses = train(strategy(2), trainer={"use_mixed_precision": True, "epochs": 1})

    assert losses == pytest.approx(expected, rel=5e-3)


@pytest.mark.slow
def test_fp16_trains_where_the_cpu_can(train):
    section = strategy(2, fp16={"enabled": True, "loss_scale": 1024})
    if not get_accelerator().is_fp16_supported():
        with pytest.raises(ConfigError, match=r"fp16\.enabled: fp16 is not supported on this CPU"):
            train(section)
        return
    _, expected = train({}, trainer={"epochs": 1})

    _, losses = train(section, trainer={"epochs": 1})

    assert losses == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_one_gpu_trains_as_a_single_process_does(train, stage):
    _, expected = train({"trainer": {"use_gpu": True}})
    section = strategy(stage, 1)
    section["trainer"]["use_gpu"] = True

    _, losses = train(section)

    assert losses == pytest.approx(expected, rel=1e-4)
