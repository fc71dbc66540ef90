"""The contract of a dataframe engine.

Preprocessing is written once, as functions of one partition. An engine only decides where partitions live and
when the functions run, so no engine can change a value. Partitions are `pyarrow.Table`: typed, without an index,
and free to convert to and from pandas, Dask, Modin, Polars and Ray Data.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from core.specs import ProcessorOptions

if TYPE_CHECKING:
    import pyarrow as pa

Frame = TypeVar("Frame")
T = TypeVar("T")
S = TypeVar("S", bound="Mergeable")


class Mergeable(Protocol):
    """A summary of rows: merging two gives the summary of both sets of rows, in any grouping, to the last bit."""

    def merge(self, other: Any) -> None:
        """Take in `other`, the summary of rows that come after this one's."""


class Source(Protocol):
    """A dataset at rest, or in memory, as ordered blocks that can be read apart from each other."""

    def blocks(self, count: int | None) -> Sequence[Callable[[], pa.Table]]:
        """Picklable readers, in row order, about `count` of them (None: as many as suit the source)."""


class Processor(ABC, Generic[Frame]):
    """Runs functions over the partitions of a dataset."""

    def __init__(self, options: ProcessorOptions) -> None:
        self.options = options

    @abstractmethod
    def open(self, source: Source) -> Frame:
        """The source as ordered partitions. May be lazy."""

    @abstractmethod
    def map(self, frame: Frame, function: Callable[[pa.Table, int], T]) -> list[T]:
        """`function(partition, first_row)` of every partition, in order, each result small enough to bring home.

        `first_row` is the number of rows in the partitions before. `function` is picklable and pure but for files
        it writes under names of its own, so an engine may run it again after a failure.
        """

    def fold(self, frame: Frame, summarise: Callable[[pa.Table, int], S]) -> S:
        """The merged summary of all partitions. An engine with many partitions may merge in a tree."""

        def merged(left: S, right: S) -> S:
            left.merge(right)
            return left

        return functools.reduce(merged, self.map(frame, summarise))

    def close(self) -> None:
        """Give back what `open` took."""
