"""Feather and Arrow IPC, as a file or as a stream."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.feather

from core.data.columns import plain
from core.data.formats.file import File


def schema(file: File) -> pa.Schema:
    return _table(file).schema


def blocks(file: File) -> int:
    return 1


def read(file: File, columns: list[str] | None, block: int) -> pa.Table:
    table = _table(file)
    return plain(table if columns is None else table.select(columns))


def _table(file: File) -> pa.Table:
    buffer = file.buffer()
    start = buffer.slice(0, min(8, buffer.size)).to_pybytes()
    try:
        if start.startswith((b"ARROW1", b"FEA1")):
            return pa.feather.read_table(pa.BufferReader(buffer), memory_map=False)
        return pa.ipc.open_stream(buffer).read_all()
    except (pa.ArrowException, OSError) as error:
        raise file.damaged(error, "Arrow") from None
