"""Local SGD: workers that train on their own, and average their weights now and then."""

from __future__ import annotations

from collections.abc import Iterator

from core import StrategySpec, hookimpl
from core_localsgd.options import LocalSGDOptions

__all__ = ["LocalSGDOptions", "register_strategy"]


@hookimpl
def register_strategy() -> Iterator[StrategySpec]:
    yield StrategySpec(
        name="localsgd",
        summary="Workers train on their own and average their weights every few steps: little to exchange.",
        implementation="core_localsgd.strategy:LocalSGD",
        options=LocalSGDOptions,
    )
