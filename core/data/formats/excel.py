"""Excel workbooks: the first sheet, its first row the names of the columns."""

from __future__ import annotations

import zipfile

import pyarrow as pa

from core.data.columns import refuse_duplicates, table_of_columns
from core.data.formats.file import File
from core.errors import DataError


def schema(file: File) -> pa.Schema:
    return _table(file).schema


def parts(file: File, count: int) -> list[None]:
    return [None]


def read(file: File, schema: pa.Schema, part: None) -> pa.Table:
    return _table(file).select(schema.names)


def _table(file: File) -> pa.Table:
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            "reading Excel files needs the package openpyxl", path=str(file), hint="pip install 'core[excel]'"
        ) from None
    try:
        workbook = openpyxl.load_workbook(pa.BufferReader(file.buffer()), read_only=True, data_only=True)
        rows = list(workbook.worksheets[0].iter_rows(values_only=True))
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise file.damaged(error, "Excel") from None
    if not rows:
        raise DataError("the first sheet is empty", path=str(file))
    header = ["" if name is None else str(name) for name in rows[0]]
    refuse_duplicates(header, str(file))
    kept = [index for index, name in enumerate(header) if name]
    data = [row for row in rows[1:] if any(value is not None for value in row)]
    return table_of_columns({header[index]: [row[index] for row in data] for index in kept}, str(file))
