from __future__ import annotations

import attrs
import pytest

from core.errors import ConfigError
from core.registry import registry
from core_dask import DaskOptions


def test_dask_is_installed_and_describes_itself():
    spec = registry().spec("processor", "dask")

    assert spec.options is DaskOptions
    assert spec.needs == ("dask",)
    assert all(field.metadata["doc"] for field in attrs.fields(DaskOptions))


def test_options_are_read_from_a_config():
    from core.config import load

    backend = {"processor": {"type": "dask", "parallelism": 16, "scheduler": "processes"}}
    model = {
        "input_features": [{"name": "x", "type": "number"}],
        "output_features": [{"name": "y", "type": "binary"}],
    }

    assert load({**model, "backend": backend}).backend.processor.options == DaskOptions(
        parallelism=16, scheduler="processes"
    )
    with pytest.raises(ConfigError, match=r"backend\.processor\.scheduler"):
        load({**model, "backend": {"processor": {"type": "dask", "scheduler": "fibres"}}})
