"""JSON lines: one record a line."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.json

from core.data.columns import table_of_records
from core.data.formats.file import File
from core.data.formats.text import decoded
from core.errors import DataError


def schema(file: File) -> pa.Schema:
    return _table(file).schema


def blocks(file: File) -> int:
    return 1


def read(file: File, columns: list[str] | None, block: int) -> pa.Table:
    table = _table(file)
    return table if columns is None else table.select(columns)


def _table(file: File) -> pa.Table:
    buffer = file.buffer()
    try:
        table = pa.json.read_json(pa.BufferReader(buffer))
        texts = {field.name: pa.string() for field in table.schema if pa.types.is_timestamp(field.type)}
        if texts:
            # pyarrow turns what looks like a time into a time; a feature wants the text that was written.
            options = pa.json.ParseOptions(explicit_schema=pa.schema(texts))
            names = table.column_names
            table = pa.json.read_json(pa.BufferReader(buffer), parse_options=options).select(names)
    except (pa.ArrowException, UnicodeDecodeError):
        # Values of several kinds in one column, another encoding, or a mistake: slower, and with the line's number.
        return table_of_records(_records(file, buffer))
    return table


def _records(file: File, buffer: pa.Buffer) -> list[dict[str, object]]:
    records = []
    for number, line in enumerate(decoded(buffer, str(file)).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"not readable as JSON: {error.msg}", path=f"{file}:{number}:{error.colno}") from None
        if not isinstance(record, dict):
            raise DataError(
                "not a record", path=f"{file}:{number}", found=record, expected="a JSON object on each line"
            )
        records.append(record)
    return records
