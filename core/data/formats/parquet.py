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


def parts(file: File, count: int) -> range:
    with _opened(file) as parquet:
        return range(parquet.num_row_groups)


def read(file: File, schema: pa.Schema, part: int) -> pa.Table:
    with _opened(file) as parquet:
        return plain(parquet.read_row_group(part, columns=schema.names).select(schema.names))


@contextmanager
def _opened(file: File) -> Iterator[pq.ParquetFile]:
    with file.opened() as content:
        try:
            yield pq.ParquetFile(content)
        except (pa.ArrowException, OSError) as error:
            raise file.damaged(error, "Parquet") from None
