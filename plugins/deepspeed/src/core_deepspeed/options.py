"""The keys of `strategy: {type: deepspeed}`: DeepSpeed's own sections, with DeepSpeed's meanings and defaults.

What is declared here is checked as the config is read, without DeepSpeed; what else there is, before any data is read,
by DeepSpeed's own models in `core_deepspeed.sections`.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from core import GroupOptions

Sections = dict[str, Any]


_SECTION = {"doc": "The other keys of DeepSpeed's section, passed on unchanged.", "extra": True}
_CONFIGURATION = {"doc": "Any other section of DeepSpeed's configuration, passed on unchanged.", "extra": True}


@attrs.frozen(kw_only=True)
class Offload:
    """Where a part of the training state is kept instead of the device."""

    device: Literal["cpu", "none"] = attrs.field(default="none", metadata={"doc": "`cpu` moves it to main memory."})
    pin_memory: bool = attrs.field(
        default=False, metadata={"doc": "Keep it page-locked, which a GPU reads faster; it cannot be swapped out."}
    )
    more: Sections = attrs.field(factory=dict, metadata=_SECTION)


@attrs.frozen(kw_only=True)
class ZeroOptimization:
    """What is divided among the workers."""

    stage: Literal[0, 1, 2, 3] = attrs.field(
        default=0,
        metadata={"doc": "0 divides nothing, 1 optimiser state, 2 gradients as well, 3 weights as well."},
    )
    offload_optimizer: Offload | None = attrs.field(
        default=None, metadata={"doc": "Keep optimiser state, and update, in main memory; stages 1 to 3."}
    )
    offload_param: Offload | None = attrs.field(
        default=None, metadata={"doc": "Keep weights in main memory between uses; stage 3."}
    )
    more: Sections = attrs.field(factory=dict, metadata=_SECTION)


@attrs.frozen(kw_only=True)
class Precision:
    """Weights and gradients of 16 bits, beside a copy of the weights in 32 that the optimiser updates."""

    enabled: bool = attrs.field(default=False, metadata={"doc": "Whether to train in this precision."})
    more: Sections = attrs.field(factory=dict, metadata=_SECTION)


@attrs.frozen(kw_only=True)
class DeepSpeedOptions(GroupOptions):
    """Sections of DeepSpeed's own configuration."""

    zero_optimization: ZeroOptimization = attrs.field(
        factory=ZeroOptimization, metadata={"doc": "What is divided among the workers, and what is offloaded."}
    )
    bf16: Precision = attrs.field(factory=Precision, metadata={"doc": "Training in bfloat16."})
    fp16: Precision = attrs.field(factory=Precision, metadata={"doc": "Training in float16, with loss scaling."})
    more: Sections = attrs.field(factory=dict, metadata=_CONFIGURATION)

    def sections(self) -> Sections:
        """The configuration as DeepSpeed reads it."""
        return {key: value for key, value in _spelled_out(self).items() if key != "timeout_s"}

    @property
    def has_undeclared(self) -> bool:
        """Whether anything is passed on that only DeepSpeed can check."""
        return _has_undeclared(self)


def _has_undeclared(options: Any) -> bool:
    values = [(field.metadata, getattr(options, field.name)) for field in attrs.fields(type(options))]
    return any(
        value if metadata.get("extra") else attrs.has(type(value)) and _has_undeclared(value)
        for metadata, value in values
    )


def _spelled_out(options: Any) -> Sections:
    written: Sections = {}
    for field in attrs.fields(type(options)):
        value = getattr(options, field.name)
        if field.metadata.get("extra"):
            written |= value
        elif attrs.has(type(value)):
            written[field.name] = _spelled_out(value)
        elif value is not None:
            written[field.name] = value
    return written
