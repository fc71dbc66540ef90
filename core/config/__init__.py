"""The config: read it with `load`, write it with `resolved`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.config.dump import model_config, redacted, resolved
    from core.config.loading import load, loads
    from core.config.sections import Config

# Feature types declare their settings with `core.config.fields`, and the config is made of feature types: what is
# public here is imported on first use, or the two would import each other.
_HOMES = {
    "Config": "core.config.sections",
    "load": "core.config.loading",
    "loads": "core.config.loading",
    "model_config": "core.config.dump",
    "redacted": "core.config.dump",
    "resolved": "core.config.dump",
}

__all__ = ["Config", "load", "loads", "model_config", "redacted", "resolved"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
