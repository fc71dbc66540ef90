"""Where predictions go: one file whose suffix names its format, or a folder of numbered Parquet parts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from core.errors import UserError
from core.run import place_of
from core.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[["pa.Table"], None]
FORMATS = (".parquet", ".csv", ".jsonl")


@attrs.frozen
class Target:
    """What `--output` names.

    Attributes:
        suffix: the format of a file; empty for a folder.
    """

    place: Location
    suffix: str

    def __str__(self) -> str:
        return str(self.place) if self.suffix else f"{self.place}/"


def target_of(
    output: str | os.PathLike[str] | None = None, output_directory: str | os.PathLike[str] | Location | None = None
) -> Target:
    """Where ``--output`` or ``--output-directory`` want predictions: without a suffix, or with a slash, in a folder.

    Raises:
        UserError: the suffix names no format.
    """
    if output is None:
        return Target(place_of(output_directory or "results") / "predictions.parquet", ".parquet")
    text = os.fspath(output)
    place = Location(text.rstrip("/") or "/")
    suffix = os.path.splitext(place.name)[1]
    if text.endswith("/") or not suffix:
        return Target(place, "")
    if suffix not in FORMATS:
        raise UserError(
            "unknown format of predictions",
            path="--output",
            found=text,
            expected=" or ".join(FORMATS),
            hint="A name without a suffix, or with a slash at its end, is a folder of Parquet parts.",
        )
    return Target(place, suffix)


def open_writer(path: Path) -> contextlib.AbstractContextManager[Write]:
    """A function that appends a table to the file at `path`, in the format that its suffix names."""
    return _jsonl(path) if path.suffix == ".jsonl" else _columnar(path)


@contextlib.contextmanager
def _columnar(path: Path) -> Iterator[Write]:
    """Parquet or CSV, by Arrow's writers, which want the schema when they are made."""
    import pyarrow.csv
    import pyarrow.parquet

    def make(schema: pa.Schema) -> Any:
        if path.suffix == ".csv":
            return pyarrow.csv.CSVWriter(path, schema)
        return pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=repeating(schema))

    with contextlib.ExitStack() as stack:
        writer = None

        def write(table: pa.Table) -> None:
            nonlocal writer
            if writer is None:
                writer = stack.enter_context(make(table.schema))
            writer.write_table(table)

        yield write


def repeating(schema: pa.Schema) -> list[str]:
    """Columns whose values may repeat, as those of probabilities do not: only they gain from a dictionary."""
    import pyarrow as pa

    return [field.name for field in schema if not pa.types.is_floating(field.type)]


@contextlib.contextmanager
def _jsonl(path: Path) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8") as file:

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

        yield write
