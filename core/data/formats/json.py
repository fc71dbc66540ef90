"""JSON: an array of records, or an object of columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from core.data.columns import table_of_columns, table_of_records
from core.data.formats.file import File
from core.data.formats.text import decoded
from core.errors import DataError


def schema(file: File) -> pa.Schema:
    return _table(file).schema


def parts(file: File, count: int) -> list[None]:
    return [None]


def read(file: File, schema: pa.Schema, part: None) -> pa.Table:
    return _table(file).select(schema.names)


def _table(file: File) -> pa.Table:
    file.require_room()
    text = decoded(file.buffer(), str(file))
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"not readable as JSON: {error.msg}",
            path=f"{file}:{error.lineno}:{error.colno}",
            hint="a file with one record a line is JSON lines: name it .jsonl" if error.msg == "Extra data" else "",
        ) from None
    if isinstance(value, list) and all(isinstance(record, dict) for record in value):
        return table_of_records(value)
    if isinstance(value, dict) and all(isinstance(column, list | dict) for column in value.values()):
        return table_of_columns({name: _values(column) for name, column in value.items()}, str(file))
    raise DataError("not a table", path=str(file), found=value, expected="an array of records, or an object of columns")


def _values(column: list[Any] | dict[str, Any]) -> list[Any]:
    return list(column.values()) if isinstance(column, dict) else column
