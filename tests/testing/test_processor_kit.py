"""The conformance kit of processors passes a right one, and tells what is wrong with each wrong one."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pyarrow as pa
import pytest

from core.errors import DataError
from core.processor import Processor, Source
from core.specs import ProcessorOptions
from core.testing.datasets import cases
from core.testing.processor import ProcessorConformance

CASE = cases()[0]


class Right(Processor[list[pa.Table]]):
    """Partitions in a list."""

    def open(self, source: Source) -> list[pa.Table]:
        return [read() for read in source.blocks(self.options.parallelism)]

    def map(self, frame, function):
        found, first = [], 0
        for table in frame:
            found.append(function(table, first))
            first += table.num_rows
        return found


class DropsRows(Right):
    """The last row of each partition but the only one, as an off-by-one does."""

    def open(self, source):
        return [table.slice(0, table.num_rows - (table.num_rows > 1)) for table in super().open(source)]


class DoublesRows(Right):
    """Runs a partition again after a failure, and keeps what it had."""

    def open(self, source):
        tables = super().open(source)
        return [*tables[:1], *tables]


class MapsInTheOrderOfCompletion(Right):
    def map(self, frame, function):
        return super().map(frame, function)[::-1]


class MergesInTheOrderOfCompletion(Right):
    def fold(self, frame, summarise):
        def merged(left, right):
            left.merge(right)
            return left

        return functools.reduce(merged, self.map(frame, summarise)[::-1])


class CountsRowsFromZero(Right):
    """In each partition, so that what depends on a row's number depends on the partitions."""

    def map(self, frame, function):
        return [function(table, 0) for table in frame]


class SumsUpTheFirstPartition(Right):
    def fold(self, frame, summarise):
        return self.map(frame[:1], summarise)[0]


class GuessesTypes(Right):
    """Of each partition, as a frame without Arrow's types does."""

    def open(self, source):
        return [pa.Table.from_pandas(table.to_pandas(), preserve_index=False) for table in super().open(source)]


class TellsTheLastMistake(Right):
    def map(self, frame, function):
        found, problem = [], None
        first = 0
        for table in frame:
            try:
                found.append(function(table, first))
            except DataError as error:
                problem = error
            first += table.num_rows
        if problem is not None:
            raise problem
        return found


WRONG = {
    (DropsRows, "test_gives_what_pandas_gives"): "statistics differ",
    (DropsRows, "test_partitions_are_the_rows_in_order"): "rows, or their order",
    (DoublesRows, "test_gives_what_pandas_gives"): "differ with 1 partitions",
    (MapsInTheOrderOfCompletion, "test_partitions_are_the_rows_in_order"): "rows, or their order",
    (MapsInTheOrderOfCompletion, "test_gives_what_pandas_gives"): "differs? with 3 partitions",
    (MergesInTheOrderOfCompletion, "test_summaries_are_merged_in_row_order"): "order of merging",
    (CountsRowsFromZero, "test_partitions_are_the_rows_in_order"): "first rows",
    (CountsRowsFromZero, "test_gives_what_pandas_gives"): "differs? with 3 partitions",
    (SumsUpTheFirstPartition, "test_gives_what_pandas_gives"): "statistics differ with 3 partitions",
    (GuessesTypes, "test_partitions_are_the_rows_in_order"): "types of the columns",
    (TellsTheLastMistake, "test_the_first_mistake_in_row_order_is_told"): "is not the first",
}


def check(kind: type[Processor[Any]], test: str, tmp_path) -> None:
    """Run one test of the kit on a processor, as pytest would."""

    class Kit(ProcessorConformance):
        def make(self, parallelism):
            return kind(ProcessorOptions(parallelism=parallelism))

    kit = Kit()
    given = {"engine": kit.make(3), "case": CASE, "tmp_path": tmp_path}
    function = getattr(kit, test)
    function(**{name: given[name] for name in inspect.signature(function).parameters})


@pytest.mark.parametrize(("kind", "test"), WRONG, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_processor_fails_for_its_fault(kind, test, tmp_path):
    with pytest.raises(AssertionError, match=WRONG[kind, test]):
        check(kind, test, tmp_path)


@pytest.mark.parametrize("test", sorted({test for _, test in WRONG}))
def test_a_right_processor_passes(test, tmp_path):
    check(Right, test, tmp_path)
