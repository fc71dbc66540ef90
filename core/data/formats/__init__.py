"""File formats: one module a format, each with the same three functions.

``schema(file)`` gives the columns, ``parts(file, count)`` says what can be read apart, and ``read(file, schema, part)``
reads that. `File` hides where the bytes are and how they are compressed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
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
    def parts(file: File, count: int) -> Sequence[Any]:
        """What `read` takes, picklable: about `count` parts where the format can be cut anywhere, else what it has."""

    @staticmethod
    def read(file: File, schema: pa.Schema, part: Any) -> pa.Table:
        """The rows of one part, with the columns of `schema`, of its types where the format has none."""


def format_of(suffix: str) -> Format:
    """The module that reads files of this suffix, which is a key of `FORMATS`."""
    module: Any = importlib.import_module(f"core.data.formats.{FORMATS[suffix]}")
    return module  # type: ignore[no-any-return]
