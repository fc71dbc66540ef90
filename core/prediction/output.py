"""Where predictions go: one table in memory, or one file whose suffix names its format, written as they come."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.Table"], None]
FORMATS = (".parquet", ".csv", ".jsonl")


def predictions_path(output: str | None, output_directory: str | None) -> Location:
    """The file that ``--output`` or ``--output-directory`` ask for.

    Raises:
        UserError: the suffix names no format.
    """
    place = Location(output) if output else Location(output_directory or "results") / "predictions.parquet"
    if not place.name.endswith(FORMATS):
        raise UserError("unknown format of predictions", path="--output", found=output, expected=" or ".join(FORMATS))
    return place


@contextlib.contextmanager
def write_predictions(place: Location) -> Iterator[Write]:
    """A function that appends a table. The file gets its name when the block ends without an exception."""
    writer = _jsonl if place.name.endswith(".jsonl") else _columnar
    with place.replacing_file() as path, writer(path) as write:
        yield write


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
