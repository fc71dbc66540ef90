"""JSON lines: one record a line. A part is a range of lines."""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.json

from core.data.columns import array_of, table_of_records
from core.data.formats.file import File
from core.data.formats.rows import row_starts
from core.data.formats.text import decoded, encoding_of, marked_encoding
from core.errors import DataError

_SCHEMA_BYTES = 1 << 26
"""What is read at a time to learn the columns' types."""


@attrs.frozen
class Lines:
    """Those between two offsets."""

    start: int
    stop: int


def schema(file: File) -> pa.Schema:
    count = 1 if file.compression else -(-file.size() // _SCHEMA_BYTES)
    try:
        schemas = [_inferred(_content(file, part)) for part in parts(file, count)]
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowException, UnicodeDecodeError):
        # Values of several kinds in one column, another encoding, or a mistake: slower, and with the line's number.
        return table_of_records(_records(file, None)).schema


def parts(file: File, count: int) -> list[Lines | None]:
    if count < 2 or file.compression:
        return [None]
    if marked_encoding(file.head(4)) or encoding_of(file.chunks, str(file)) != "utf-8":
        return [None]
    return [Lines(*edges) for edges in itertools.pairwise(row_starts(file, count, 0, None))]


def read(file: File, schema: pa.Schema, part: Lines | None) -> pa.Table:
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pa.json.read_json(pa.BufferReader(_content(file, part)), parse_options=options)
        return table.select(schema.names)
    except (pa.ArrowException, UnicodeDecodeError):
        records = _records(file, part)
        return pa.table(
            [array_of([record.get(name) for record in records], kind) for name, kind in _fields(schema)], schema=schema
        )


def _fields(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return list(zip(schema.names, schema.types, strict=True))


def _content(file: File, part: Lines | None) -> pa.Buffer:
    return file.buffer() if part is None else file.span(part.start, part.stop)


def _inferred(buffer: pa.Buffer) -> pa.Schema:
    found = pa.json.read_json(pa.BufferReader(buffer)).schema
    # pyarrow turns what looks like a time into a time; a feature wants the text that was written.
    return pa.schema([(name, pa.string() if pa.types.is_timestamp(kind) else kind) for name, kind in _fields(found)])


def _records(file: File, part: Lines | None) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(decoded(_content(file, part), str(file)).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            where = f"{_line(file, part, number)}:{error.colno}"
            raise DataError(f"not readable as JSON: {error.msg}", path=where) from None
        if not isinstance(record, dict):
            where = _line(file, part, number)
            raise DataError("not a record", path=where, found=record, expected="a JSON object on each line")
        records.append(record)
    return records


def _line(file: File, part: Lines | None, number: int) -> str:
    """The place of a part's line."""
    return f"{file}:{number if part is None else file.lines_before(part.start) + number}"
