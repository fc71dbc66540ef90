"""core: one config file, trained unchanged on a laptop or a cluster.

The names below are the public API; nothing heavy is imported until one of them is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core import errors
from core.hookspecs import hookimpl
from core.specs import (
    GroupOptions,
    LoaderOptions,
    LoaderSpec,
    ProcessorOptions,
    ProcessorSpec,
    StrategyOptions,
    StrategySpec,
)

if TYPE_CHECKING:
    from core.api import Model, preprocess
    from core.callbacks import Callback
    from core.cli.console import Console
    from core.jobs import Run
    from core.registry import plugins

__version__ = "0.1.0"

__all__ = [
    "Callback",
    "Console",
    "GroupOptions",
    "LoaderOptions",
    "LoaderSpec",
    "Model",
    "ProcessorOptions",
    "ProcessorSpec",
    "Run",
    "StrategyOptions",
    "StrategySpec",
    "errors",
    "hookimpl",
    "plugins",
    "preprocess",
]

_LAZY = {
    "Callback": "core.callbacks",
    "Console": "core.cli.console",
    "Model": "core.api",
    "Run": "core.jobs",
    "plugins": "core.registry",
    "preprocess": "core.api",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
