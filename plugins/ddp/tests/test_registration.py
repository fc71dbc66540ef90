from __future__ import annotations

import attrs
import pytest

from core.registry import registry
from core_ddp import DDPOptions


def test_ddp_is_installed_and_describes_itself():
    spec = registry().spec("strategy", "ddp")

    assert spec.distributed
    assert spec.options is DDPOptions
    assert all(field.metadata["doc"] for field in attrs.fields(DDPOptions))


def test_options_are_arguments_of_torch_with_its_defaults():
    import inspect

    from torch.nn.parallel import DistributedDataParallel

    arguments = inspect.signature(DistributedDataParallel).parameters

    own = attrs.asdict(DDPOptions(), filter=lambda field, _: field.name != "timeout_s")
    assert own == {name: arguments[name].default for name in own}


def test_bucket_of_no_size_is_refused():
    with pytest.raises(ValueError, match="bucket_cap_mb"):
        DDPOptions(bucket_cap_mb=0)
