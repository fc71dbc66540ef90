"""File formats: one module a format, each with the same two functions.

``schema(file)`` gives the columns that ``read(file, columns, block)`` would, and ``blocks(file)`` how many parts can
be read apart. `File` hides where the bytes are and how they are compressed.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import pyarrow as pa

from core.data.formats.file import File

FORMATS = {
    ".csv": "delimited",
    ".tsv": "delimited",
    ".tab": "delimited",
    ".psv": "delimited",
    ".txt": "delimited",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".xlsx": "excel",
    ".xlsm": "excel",
}
"""Suffix to module."""


class Format(Protocol):
    """What a format's module offers."""

    @staticmethod
    def schema(file: File) -> pa.Schema:
        """Names and types of the columns, as `core.data.columns.plain` leaves them."""

    @staticmethod
    def blocks(file: File) -> int:
        """In how many parts the file can be read."""

    @staticmethod
    def read(file: File, columns: list[str] | None, block: int) -> pa.Table:
        """One part, with `columns` in that order."""


def format_of(suffix: str) -> Format:
    """The module that reads files of this suffix, which is a key of `FORMATS`."""
    module: Any = importlib.import_module(f"core.data.formats.{FORMATS[suffix]}")
    return module  # type: ignore[no-any-return]
