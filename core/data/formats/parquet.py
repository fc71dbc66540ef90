"""Parquet: a part is a row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """A row group. Columns that `schema` wants as dictionaries are not decoded: most files hold texts so."""
    kept = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    with _opened(file, kept) as parquet:
        table = parquet.read_row_group(part, columns=schema.names).select(schema.names)
        return plain(table) if not kept else _plain_but(table, kept)


def _plain_but(table: pa.Table, kept: list[str]) -> pa.Table:
    decoded = plain(table.drop_columns(kept))
    columns = {name: (table if name in kept else decoded).column(name) for name in table.column_names}
    return pa.table(columns)


@contextmanager
def _opened(file: File, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    with file.opened() as content:
        try:
            yield pq.ParquetFile(content, read_dictionary=list(dictionaries) or None)
        except (pa.ArrowException, OSError) as error:
            raise file.damaged(error, "Parquet") from None
