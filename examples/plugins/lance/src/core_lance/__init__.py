"""Shuffled batches from disk, through an indexed copy of the data in the Lance format."""

from __future__ import annotations

from collections.abc import Iterator

from core import LoaderSpec, hookimpl
from core_lance.options import LanceOptions

__all__ = ["LanceOptions", "register_loader"]


@hookimpl
def register_loader() -> Iterator[LoaderSpec]:
    yield LoaderSpec(
        name="lance",
        summary="Rows taken by number from a copy on disk: whole shuffles of more data than memory holds.",
        implementation="core_lance.loader:LanceLoader",
        options=LanceOptions,
        needs=("lance",),
        remedy="pip install pylance",
    )
