"""What a config may say of DeepSpeed, and what each mistake is told."""

from __future__ import annotations

from typing import Any

import pytest

from core.config.structure import structure
from core.errors import ConfigError
from core.strategy import Strategy
from core.training.batching import Batching
from core_deepspeed import DeepSpeedOptions

AT = "backend.trainer.strategy"


def read(section: dict[str, Any]) -> DeepSpeedOptions:
    options, problems = structure(section, DeepSpeedOptions)
    assert options is not None, problems
    return options


@pytest.fixture
def check():
    """Check a section beside a trainer of 64 rows in 2 parts on 2 workers; returns the problems' messages by path."""
    from core.config.sections import Trainer
    from core.registry import registry

    strategy: type[Strategy] = registry().implementation("strategy", "deepspeed")

    def run(section: dict[str, Any], **trainer: Any) -> dict[str, Any]:
        settings = Trainer(batch_size=64, gradient_accumulation_steps=2, **trainer)
        try:
            strategy.check(read(section), settings, Batching(rows=64, accumulation=2), 2, "cpu")
        except ConfigError as error:
            return {problem.path: problem for problem in error.problems}
        return {}

    return run


def test_sections_reach_deepspeed_as_they_were_written():
    section = {
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "sub_group_size": 7,
        },
        "bf16": {"enabled": True, "check_grad_overflow": False},
        "activation_checkpointing": {"partition_activations": True},
        "timeout_s": 5.0,
    }

    written = read(section).sections()

    del section["timeout_s"]
    assert written == {**section, "fp16": {"enabled": False}}


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"zero_optimization": {"stage": 4}}, ("zero_optimization", "stage")),
        ({"zero_optimization": {"stage": "3"}}, ("zero_optimization", "stage")),
        (
            {"zero_optimization": {"offload_param": {"device": "nvme"}}},
            ("zero_optimization", "offload_param", "device"),
        ),
        ({"bf16": {"enabled": "yes"}}, ("bf16", "enabled")),
        ({"fp16": True}, ("fp16",)),
        ({"timeout_s": 0}, ("timeout_s",)),
    ],
)
def test_wrong_values_are_found_when_the_config_is_read(section, path):
    options, problems = structure(section, DeepSpeedOptions)

    assert options is None
    assert [at for at, _ in problems] == [path]


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "stage3_max_live_parameters": 1e9}},
        {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
        {"flops_profiler": {"enabled": True}, "wall_clock_breakdown": True, "steps_per_print": 10},
        {"tensorboard": {"enabled": False}, "comms_logger": {"enabled": False}, "aio": {"queue_depth": 16}},
        {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}, "gradient_predivide_factor": 2.0},
        {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 2},
        {"gradient_clipping": 0.5},
        {"optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.999], "weight_decay": 0.01}}},
    ],
)
def test_what_deepspeed_knows_passes(check, section):
    from core.training.optimizers import AdamW

    assert check(section, optimizer=AdamW()) == {}


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ({"train_batch_size": 32}, "train_batch_size", "contradicts trainer.batch_size"),
        ({"train_micro_batch_size_per_gpu": 32}, "train_micro_batch_size_per_gpu", "contradicts trainer.batch_size"),
        ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps", "contradicts trainer.gradient_acc"),
        ({"gradient_clipping": 1.0}, "gradient_clipping", "contradicts trainer.gradient_clipping"),
        ({"optimizer": {"type": "Lamb"}}, "optimizer.type", "contradicts trainer.optimizer"),
        (
            {"optimizer": {"type": "Adam", "params": {"adam_w_mode": False, "lr": 1.0}}},
            "optimizer.params.lr",
            "contradicts trainer.learning_rate",
        ),
        ({"scheduler": {"type": "WarmupLR"}}, "scheduler", "does not apply"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel", "does not apply"),
        ({"zero_optimization": {"reduce_bucket_siz": 5}}, "zero_optimization.reduce_bucket_siz", "unknown key"),
        ({"zero_optimization": {"overlap_comm": "maybe"}}, "zero_optimization.overlap_comm", "valid boolean"),
        ({"fp16": {"loss_scale": -1}}, "fp16.loss_scale", "must be >= 0"),
        ({"flop_profiler": {}}, "flop_profiler", "is no section"),
        ({"sparse_attention": {}}, "sparse_attention", "has been removed"),
        ({"tensorboard": {"enabled": 7}}, "tensorboard.enabled", "valid boolean"),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
            "zero_optimization.offload_optimizer",
            "stage 1",
        ),
        ({"bf16": {"enabled": True}}, "zero_optimization.stage", "needs a ZeRO stage"),
        (
            {"zero_optimization": {"stage": 2, "compute_grad_norm": False}},
            "zero_optimization.compute_grad_norm",
            "no norm",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_data_is_read(check, section, key, message):
    problems = check(section)

    assert list(problems) == [f"{AT}.{key}"]
    assert message in problems[f"{AT}.{key}"].message


def test_the_nearest_name_is_told(check):
    problems = check({"zero_optimization": {"stage3_max_live_parameter": 5}})

    assert "stage3_max_live_parameters" in problems[f"{AT}.zero_optimization.stage3_max_live_parameter"].hint


def test_16_bits_of_two_kinds_are_refused(check):
    problems = check({"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "fp16": {"enabled": True}})

    assert [problem.message for problem in problems.values()] == [
        "DeepSpeed refuses it: bfloat16 and fp16 modes cannot be simultaneously enabled"
    ]
