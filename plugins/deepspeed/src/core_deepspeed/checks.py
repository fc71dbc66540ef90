"""What a configuration asks of DeepSpeed, compared with what core and DeepSpeed can do, before any data is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.errors import Problem
from core_deepspeed.options import DeepSpeedOptions, Sections

PATH = "backend.trainer.strategy"

_BY_CORE = "core does this itself, and alike for every strategy"
_DATA_PARALLEL = "core gives each worker rows of its own, and all of the network"
NOT_FOR_CORE = {
    "scheduler": "learning-rate schedules are core's, so that they are the same everywhere: trainer"
    ".learning_rate_scheduler",
    "checkpoint": _BY_CORE,
    "data_efficiency": _BY_CORE,
    "dataloader_drop_last": _BY_CORE,
    "autotuning": _BY_CORE,
    "managed_gradient_accumulation": _BY_CORE,
    "tensor_parallel": _DATA_PARALLEL,
    "expert_parallel": _DATA_PARALLEL,
    "pipeline": _DATA_PARALLEL,
    "sequence_parallel_size": _DATA_PARALLEL,
    "data_parallel_size": _DATA_PARALLEL,
    "hybrid_engine": _DATA_PARALLEL,
}
"""Sections that DeepSpeed knows and that would have no effect here, or a wrong one."""


def problems(options: DeepSpeedOptions, trainer: Any, cut: Any, world_size: int, device: str) -> Iterator[Problem]:
    """Everything that is wrong. `trainer` and `cut` are as in `core.strategy.Strategy.check`."""
    sections = options.sections()
    yield from _given_twice(sections, trainer, cut, world_size)
    for key, why in NOT_FOR_CORE.items():
        if key in sections:
            yield Problem(message="does not apply", path=f"{PATH}.{key}", found=sections[key], hint=why)
    found = []
    if options.has_undeclared or options.bf16.enabled or options.fp16.enabled:
        from core_deepspeed.sections import refused, unsupported

        found = list(refused(sections, device)) or list(unsupported(options, device))
        yield from found
    if not found:
        yield from _impossible(options, trainer)


def _given_twice(sections: Sections, trainer: Any, cut: Any, world_size: int) -> Iterator[Problem]:
    clipping = trainer.gradient_clipping
    parts = cut.accumulation or 1
    share, rest = divmod(cut.rows, world_size * parts)
    same: dict[str, tuple[Any, str]] = {
        "gradient_clipping": (
            (clipping and clipping.clipglobalnorm) or 0.0,
            "trainer.gradient_clipping.clipglobalnorm",
        ),
        "gradient_accumulation_steps": (parts, "trainer.gradient_accumulation_steps"),
        "train_batch_size": (cut.rows, "trainer.batch_size"),
        "train_micro_batch_size_per_gpu": (
            cut.rows / (world_size * parts) if rest else share,
            "trainer.batch_size, spread over workers and gradient_accumulation_steps",
        ),
        "zero_allow_untested_optimizer": (True, "core, whose optimiser is torch's"),
        "zero_force_ds_cpu_optimizer": (False, "core, whose optimiser is torch's"),
    }
    for key, (value, owner) in same.items():
        if key in sections and sections[key] != value:
            yield Problem(
                message=f"contradicts {owner}",
                path=f"{PATH}.{key}",
                found=sections[key],
                expected=str(value),
                hint=f"Leave it out: DeepSpeed gets it from {owner}.",
            )
    if "optimizer" in sections:
        yield from _optimizer(sections["optimizer"], trainer)


def _optimizer(given: Any, trainer: Any) -> Iterator[Problem]:
    path, hint = f"{PATH}.optimizer", "Leave it out: DeepSpeed runs the optimiser that trainer.optimizer describes."
    if not isinstance(given, dict) or not isinstance(given.get("params", {}), dict):
        yield Problem(message="wrong type", path=path, found=given, expected="a mapping", hint=hint)
        return
    ours = trainer.optimizer
    params = dict(given.get("params", {}))
    kind = str(given.get("type")).lower()
    if kind == "adam" and params.pop("adam_w_mode", True):
        kind = "adamw"  # which is what DeepSpeed means by Adam
    if kind != ours.torch_name.lower():
        yield Problem(
            message="contradicts trainer.optimizer.type",
            path=f"{path}.type",
            found=given.get("type"),
            expected=ours.torch_name.lower(),
            hint=hint,
        )
        return
    values = {"lr": trainer.learning_rate, "weight_decay": ours.weight_decay, "torch_adam": True, **ours.arguments()}
    for key, value in params.items():
        if key not in values or _plain(value) != _plain(values[key]):
            yield Problem(
                message="contradicts " + ("trainer.learning_rate" if key == "lr" else "trainer.optimizer"),
                path=f"{path}.params.{key}",
                found=value,
                expected=str(values.get(key, "no such key")),
                hint=hint,
            )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _impossible(options: DeepSpeedOptions, trainer: Any) -> Iterator[Problem]:
    zero = options.zero_optimization
    lowest: dict[str, int] = {"offload_optimizer": 1, "offload_param": 3}
    for key, stage in lowest.items():
        if getattr(zero, key) is not None and zero.stage < stage:
            yield Problem(
                message=f"applies from stage {stage} on",
                path=f"{PATH}.zero_optimization.{key}",
                hint=f"Set zero_optimization.stage to {stage} or more, or leave {key} out.",
            )
    for key in ("bf16", "fp16"):
        if getattr(options, key).enabled and zero.stage == 0:
            yield Problem(
                message=f"{key} needs a ZeRO stage of 1 or more",
                path=f"{PATH}.zero_optimization.stage",
                found=0,
                expected="1, 2 or 3",
                hint="Stage 0 of DeepSpeed starts 16-bit training with a step that changes the weights.",
            )
    norm = zero.more.get("compute_grad_norm", True)
    if not norm and trainer.gradient_clipping and trainer.gradient_clipping.clipglobalnorm:
        yield Problem(
            message="leaves no norm to clip by",
            path=f"{PATH}.zero_optimization.compute_grad_norm",
            found=False,
            hint="Set trainer.gradient_clipping to null, or leave this out.",
        )
