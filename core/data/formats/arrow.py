"""Feather and Arrow IPC, as a file or as a stream. A part is a record batch of a file; a stream is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.feather

from core.data.columns import plain, plain_type
from core.data.formats.file import File


def schema(file: File) -> pa.Schema:
    with _opened(file) as reader:
        return pa.schema([field.with_type(plain_type(field.type)) for field in reader.schema])


def parts(file: File, count: int) -> list[int | None]:
    with _opened(file) as reader:
        return [*range(reader.num_record_batches)] if isinstance(reader, pa.RecordBatchFileReader) else [None]


def read(file: File, schema: pa.Schema, part: int | None) -> pa.Table:
    with _opened(file) as reader:
        if isinstance(reader, pa.Table):
            table = reader
        elif part is None:
            table = reader.read_all()
        else:
            table = pa.Table.from_batches([reader.get_batch(part)])
        return plain(table.select(schema.names))


@contextmanager
def _opened(file: File) -> Iterator[pa.RecordBatchFileReader | pa.RecordBatchStreamReader | pa.Table]:
    """The file's reader; all of the table where it is of Feather's first version."""
    buffer = file.buffer()
    start = buffer.slice(0, min(8, buffer.size)).to_pybytes()
    try:
        if start.startswith(b"ARROW1"):
            yield pa.ipc.open_file(buffer)
        elif start.startswith(b"FEA1"):
            yield pa.feather.read_table(pa.BufferReader(buffer), memory_map=False)
        else:
            yield pa.ipc.open_stream(buffer)
    except (pa.ArrowException, OSError) as error:
        raise file.damaged(error, "Arrow") from None
