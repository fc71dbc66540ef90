"""Preprocessing that holds the dataset as polars frames."""

from __future__ import annotations

from collections.abc import Iterator

from core import ProcessorSpec, hookimpl
from core_polars.options import PolarsOptions

__all__ = ["PolarsOptions", "register_processor"]


@hookimpl
def register_processor() -> Iterator[ProcessorSpec]:
    yield ProcessorSpec(
        name="polars",
        summary="Polars frames in this process, read and summed up at the same time.",
        implementation="core_polars.processor:PolarsProcessor",
        options=PolarsOptions,
        needs=("polars",),
        remedy="pip install polars",
    )
