"""The whole surface a plugin can implement: three hooks.

A plugin is a module named by an entry point in the group ``core.plugins``. Its hooks return specs, plain frozen
descriptions, so the module must import neither torch nor ray nor a dataframe library. Hooks only ever gain
optional arguments. A complete plugin module::

    from core import StrategySpec, hookimpl

    @hookimpl
    def register_strategy():
        yield StrategySpec(
            name="local_sgd",
            summary="Workers average their weights every few steps.",
            implementation="core_localsgd.strategy:LocalSGD",
        )
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from core.specs import LoaderSpec, ProcessorSpec, StrategySpec

PROJECT = "core"
ENTRY_POINT_GROUP = "core.plugins"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_processor() -> Iterable[ProcessorSpec]:  # type: ignore[empty-body]
    """Dataframe engines that can run preprocessing."""


@hookspec
def register_strategy() -> Iterable[StrategySpec]:  # type: ignore[empty-body]
    """Ways to spread one training run over workers."""


@hookspec
def register_loader() -> Iterable[LoaderSpec]:  # type: ignore[empty-body]
    """Ways to turn processed data into batches of tensors."""
