"""What Dask's tasks do. All of it can be pickled by name.

The user's mistakes come home as values, so that the first in row order is told whichever task is done first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pyarrow as pa

from core.errors import CoreError


@attrs.frozen
class Failed:
    """An error in place of a result."""

    error: CoreError


@attrs.frozen(eq=False)
class Shared:
    """A function that all tasks of a pass take, as a value of the graph."""

    function: Callable[[pa.Table, int], Any]


def value(result: Any) -> Any:
    """The result, or the error raised."""
    if isinstance(result, Failed):
        raise result.error
    return result


def read(reader: Callable[[], pa.Table]) -> Any:
    """A block's table, or why it cannot be read."""
    try:
        return reader()
    except CoreError as error:
        return Failed(error)


def rows(table: Any) -> Any:
    """The number of rows that `read` read."""
    return table if isinstance(table, Failed) else table.num_rows


def apply(shared: Shared, block: Any, first_row: int) -> Any:
    """The function's result for a block: a table, or what reads it."""
    try:
        return shared.function(block if isinstance(block, pa.Table) else block(), first_row)
    except CoreError as error:
        return Failed(error)


def merge(*summaries: Any) -> Any:
    """The first summary, with the others taken in: each is the result of a task that nothing else depends on."""
    if failed := next((summary for summary in summaries if isinstance(summary, Failed)), None):
        return failed
    first, *others = summaries
    for other in others:
        first.merge(other)
    return first
