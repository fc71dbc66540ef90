"""Parquet: a part is a row group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from core.data.columns import plain, plain_type
from core.data.formats.file import File


def schema(file: File) -> pa.Schema:
    with _opened(file) as parquet:
        return pa.schema([field.with_type(plain_type(field.type)) for field in parquet.schema_arrow])


def blocks(file: File) -> int:
    with _opened(file) as parquet:
        return int(parquet.num_row_groups)


def read(file: File, columns: list[str] | None, block: int) -> pa.Table:
    with _opened(file) as parquet:
        table = parquet.read_row_group(block, columns=columns)
        return plain(table if columns is None else table.select(columns))


@contextmanager
def _opened(file: File) -> Iterator[pq.ParquetFile]:
    buffer = file.buffer()
    try:
        yield pq.ParquetFile(pa.BufferReader(buffer))
    except (pa.ArrowException, OSError) as error:
        raise file.damaged(error, "Parquet") from None
