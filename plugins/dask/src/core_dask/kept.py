"""Parsed blocks in a temporary folder of this machine, so that a dataset is parsed once and not once a pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import pyarrow as pa

from core.errors import CoreError
from core_dask.tasks import Failed

Reader = Callable[[], pa.Table]


@attrs.frozen
class Block:
    """One block.

    Attributes:
        reader: of what was kept, or of the dataset where it could not be.
        rows: number of rows.
        problem: why it could not be kept.
    """

    reader: Reader
    rows: int
    problem: str = ""


def keep(reader: Reader, path: str) -> Any:
    """Read a block and keep it at `path`."""
    try:
        table = reader()
    except CoreError as error:
        return Failed(error)
    try:
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    except OSError as error:
        return Block(reader, table.num_rows, str(error))
    return Block(functools.partial(mapped, path), table.num_rows)


def mapped(path: str) -> pa.Table:
    """The table kept at `path`; its pages are read when they are touched."""
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()
