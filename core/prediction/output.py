"""Where predictions go: one table in memory, or one file whose suffix names its format, written as they come."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.run import storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.Table"], None]
FORMATS = (".parquet", ".csv", ".jsonl")


def predictions_path(output: str | None, output_directory: str | None) -> Path:
    """The file that ``--output`` or ``--output-directory`` ask for.

    Raises:
        UserError: the suffix names no format.
    """
    path = Path(output or os.path.join(output_directory or "results", "predictions.parquet")).expanduser()
    if path.suffix not in FORMATS:
        raise UserError("unknown format of predictions", path="--output", found=output, expected=" or ".join(FORMATS))
    return path


@contextlib.contextmanager
def write_predictions(path: Path) -> Iterator[Write]:
    """A function that appends a table. The file gets its name when the block ends without an exception."""
    temporary = path.with_name(f".{uuid.uuid4().hex[:8]}-{path.name}")
    writer = _jsonl if path.suffix == ".jsonl" else _columnar
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with writer(temporary) as write:
                yield write
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def collect(tables: list[pa.Table]) -> Write:
    """A function that appends to a list."""
    return tables.append


@contextlib.contextmanager
def _columnar(path: Path) -> Iterator[Write]:
    """Parquet or CSV, by Arrow's writers, which want the schema when they are made."""
    import pyarrow.csv
    import pyarrow.parquet

    make = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    with contextlib.ExitStack() as stack:
        writer = None

        def write(table: pa.Table) -> None:
            nonlocal writer
            if writer is None:
                writer = stack.enter_context(make(path, table.schema))
            writer.write_table(table)

        yield write


@contextlib.contextmanager
def _jsonl(path: Path) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8") as file:

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

        yield write
