"""core: one config file, trained unchanged on a laptop or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.hookspecs import hookimpl
from core.specs import LoaderOptions, LoaderSpec, ProcessorOptions, ProcessorSpec, StrategyOptions, StrategySpec

__version__ = "0.1.0"
