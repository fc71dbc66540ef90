"""The keys of `strategy: {type: fsdp}`, named as in torch's `fully_shard` and its wrap policies."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from core import GroupOptions

# Without float16: it needs its loss scaled, and the loss belongs to the training loop.
Precision = Literal["bfloat16", "float32"]


@attrs.frozen(kw_only=True)
class MixedPrecision:
    """Arguments of `torch.distributed.fsdp.MixedPrecisionPolicy`; null keeps a parameter's own type, float32."""

    param_dtype: Precision | None = attrs.field(
        default=None,
        metadata={"doc": "Type that parameters are gathered in and computed with; shards stay float32."},
    )
    reduce_dtype: Precision | None = attrs.field(
        default=None,
        metadata={"doc": "Type that gradients are reduced in; null is that of the computation."},
    )
    output_dtype: Precision | None = attrs.field(
        default=None,
        metadata={"doc": "Type of the network's outputs; null is that of the computation."},
    )


def _divisor(_: Any, field: attrs.Attribute[Any], value: bool | int | None) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and value < 2:
        raise ValueError(f"{field.name} must be true, false, null or a number of workers of at least 2")


@attrs.frozen(kw_only=True)
class FSDPOptions(GroupOptions):
    """Arguments of `torch.distributed.fsdp.fully_shard`, and what it is applied to.

    A block is gathered before its forward and its backward, and given back after. Without a wrap policy the encoders,
    the combiner and the decoders are the blocks.
    """

    transformer_layer_cls_to_wrap: list[str] | None = attrs.field(
        default=None,
        metadata={"doc": "Names of module classes; each module of them is a block, such as TransformerEncoderLayer."},
    )
    min_num_params: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={"doc": "Make a block of each module with this many parameters that are in no block inside it."},
    )
    reshard_after_forward: bool | int | None = attrs.field(
        default=None,
        validator=_divisor,
        metadata={
            "doc": "Give a block back between forward and backward: true saves memory, false saves a gather, a number"
            " keeps it spread over so many workers; null is true but for what is in no block."
        },
    )
    cpu_offload: bool = attrs.field(
        default=False,
        metadata={"doc": "Keep shards, gradients and optimiser state in CPU memory; a GPU holds the block at work."},
    )
    mixed_precision: MixedPrecision = attrs.field(
        factory=MixedPrecision,
        metadata={"doc": "Types of computation and reduction, of whole blocks; beside trainer.use_mixed_precision."},
    )

    def __attrs_post_init__(self) -> None:
        if self.transformer_layer_cls_to_wrap is not None and self.min_num_params is not None:
            raise ValueError("transformer_layer_cls_to_wrap and min_num_params are two wrap policies: give one")
