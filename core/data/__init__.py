"""Data: reading datasets, dividing, summing up and encoding their rows, and keeping the result.

Importing this package is light; pyarrow comes with the first thing that is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core.data.datasets import Datasets

if TYPE_CHECKING:
    from core.data.cache import CacheOptions
    from core.data.encode import EncodedBlock, Inputs, encode_inputs, open_inputs
    from core.data.preprocessing import preprocess
    from core.data.processed import Processed, StoredSplit
    from core.data.sources import open_source

_HOMES = {
    "CacheOptions": "cache",
    "EncodedBlock": "encode",
    "Inputs": "encode",
    "Processed": "processed",
    "StoredSplit": "processed",
    "encode_inputs": "encode",
    "open_inputs": "encode",
    "open_source": "sources",
    "preprocess": "preprocessing",
}

__all__ = [
    "CacheOptions",
    "Datasets",
    "EncodedBlock",
    "Inputs",
    "Processed",
    "StoredSplit",
    "encode_inputs",
    "open_inputs",
    "open_source",
    "preprocess",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
