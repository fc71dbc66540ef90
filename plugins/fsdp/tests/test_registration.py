from __future__ import annotations

import inspect

import attrs
import pytest

import core
from core.registry import registry
from core_fsdp import FSDPOptions, MixedPrecision


def test_fsdp_is_installed_and_describes_itself():
    spec = registry().spec("strategy", "fsdp")

    assert spec.distributed
    assert spec.options is FSDPOptions
    assert all(field.metadata["doc"] for cls in (FSDPOptions, MixedPrecision) for field in attrs.fields(cls))


def test_options_are_arguments_of_torch_with_its_defaults():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    defaults = inspect.signature(MixedPrecisionPolicy).parameters
    assert attrs.asdict(MixedPrecision()) == {
        field.name: defaults[field.name].default for field in attrs.fields(MixedPrecision)
    }
    assert (
        FSDPOptions().reshard_after_forward
        is inspect.signature(fully_shard).parameters["reshard_after_forward"].default
    )


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"wrap": 1}, "wrap"),
        ({"min_num_params": 0}, "min_num_params"),
        ({"min_num_params": 10, "transformer_layer_cls_to_wrap": ["FullyConnected"]}, ""),
        ({"transformer_layer_cls_to_wrap": "FullyConnected"}, "transformer_layer_cls_to_wrap"),
        ({"reshard_after_forward": 1}, "reshard_after_forward"),
        ({"reshard_after_forward": "yes"}, "reshard_after_forward"),
        ({"cpu_offload": 1}, "cpu_offload"),
        ({"mixed_precision": "bfloat16"}, "mixed_precision"),
        ({"mixed_precision": {"param_dtype": "bf16"}}, "mixed_precision.param_dtype"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_a_wrong_option_is_refused_where_it_stands(options, path):
    config = {
        "input_features": [{"name": "a", "type": "number"}],
        "output_features": [{"name": "b", "type": "binary"}],
        "backend": {"trainer": {"strategy": {"type": "fsdp", **options}}},
    }

    with pytest.raises(core.errors.ConfigError) as raised:
        core.Model(config)

    assert raised.value.path == ".".join(filter(None, ["backend.trainer.strategy", path]))
