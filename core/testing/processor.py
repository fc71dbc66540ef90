"""The conformance kit of dataframe engines.

A plugin's tests subclass `ProcessorConformance`, name the processor, and pytest does the rest::

    from core.testing.processor import ProcessorConformance

    class TestPolars(ProcessorConformance):
        processor = "polars"
        options = {"streaming": True}

Every dataset of the kit goes through the engine cut into 1, 3 and 17 partitions, and must give what pandas gives: the
same splits, statistics, vocabularies and encoded rows to the last bit, under the same key of the cache, or the same
errors about the same rows. A right engine passes all; what a failing test is about is in its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pytest

from core.config import load
from core.data import CacheOptions, Datasets, Processed, preprocess
from core.errors import DataError
from core.processor import Processor
from core.processors.pandas import PandasProcessor
from core.registry import registry
from core.specs import ProcessorOptions
from core.testing.datasets import Case, cases

_SEED = 7


@attrs.frozen
class Blocks:
    """A source of given tables: `core.processor.Source` at its simplest."""

    tables: tuple[pa.Table, ...]

    def blocks(self, count: int | None) -> list[Callable[[], pa.Table]]:
        return [functools.partial(_itself, table) for table in self.tables]


@attrs.frozen(eq=False)
class Outcome:
    """What preprocessing led to.

    Attributes:
        key: of the cache entry.
        metadata: of every feature.
        splits: the encoded rows, with their numbers in the dataset.
        problems: where, what and which value; nothing else is there then.
    """

    key: str = ""
    metadata: dict[str, Any] = attrs.field(factory=dict)
    splits: dict[str, pa.Table] = attrs.field(factory=dict)
    problems: tuple[tuple[str, str, str], ...] = ()


class ProcessorConformance:
    """Subclass it, under a name that pytest collects.

    Attributes:
        processor: the word a config uses.
        options: of the processor, beside `parallelism`.
        partitions: the numbers of partitions to try.
    """

    processor: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    partitions: ClassVar[Sequence[int]] = (1, 3, 17)

    def make(self, parallelism: int | None) -> Processor[Any]:
        """The processor. To be overridden where it takes more than options."""
        spec = registry().spec("processor", self.processor)
        implementation = registry().implementation("processor", self.processor)
        made: Processor[Any] = implementation(spec.options(parallelism=parallelism, **self.options))
        return made

    @pytest.fixture
    def engine(self) -> Iterator[Processor[Any]]:
        made = self.make(3)
        yield made
        made.close()

    @pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
    def test_gives_what_pandas_gives(self, case: Case, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        dataset = case.make(tmp_path / "data")
        expected = outcome(case, dataset, PandasProcessor(ProcessorOptions(parallelism=1)), tmp_path / "pandas")

        assert bool(expected.problems) == case.refused

        for count in self.partitions:
            engine = self.make(count)
            try:
                found = outcome(case, dataset, engine, tmp_path / str(count))
            finally:
                engine.close()

            assert found.problems == expected.problems, f"errors differ with {count} partitions"
            assert found.metadata == expected.metadata, f"statistics differ with {count} partitions"
            assert found.key == expected.key, f"the key of the cache differs with {count} partitions"
            for split, table in expected.splits.items():
                assert found.splits[split].equals(table), f"{split} differs with {count} partitions"

    def test_what_it_keeps_is_found_by_pandas_and_the_reverse(self, engine: Processor[Any], tmp_path: Path) -> None:
        case = cases()[0]
        dataset = case.make(tmp_path)
        pandas = PandasProcessor(ProcessorOptions())

        for number, (first, second) in enumerate([(engine, pandas), (pandas, engine)]):
            cache = tmp_path / str(number)
            assert not processed(case, dataset, first, cache).hit
            assert processed(case, dataset, second, cache).hit

    def test_partitions_are_the_rows_in_order(self, engine: Processor[Any]) -> None:
        table = _typed_table()
        frame = engine.open(Blocks((table.slice(0, 2), table.slice(2, 0), table.slice(2, 1), table.slice(3))))

        for _ in range(2):  # a frame is passed over several times
            found = engine.map(frame, _with_first_row)

            parts = [part for part, _ in found]
            assert [part.schema for part in parts] == [table.schema] * len(parts), "types of the columns"
            assert pa.concat_tables(parts).equals(table), "rows, or their order"
            rows = [part.num_rows for part in parts]
            assert [first for _, first in found] == [sum(rows[:index]) for index in range(len(rows))], "first rows"

    def test_no_rows_keep_their_columns(self, engine: Processor[Any]) -> None:
        frame = engine.open(Blocks((_typed_table().slice(0, 0),)))

        found = engine.map(frame, _with_first_row)

        assert pa.concat_tables([part for part, _ in found]).equals(_typed_table().slice(0, 0))

    def test_summaries_are_merged_in_row_order(self, engine: Processor[Any]) -> None:
        frame = engine.open(Blocks(tuple(pa.table({"n": range(i * 10, i * 10 + 10)}) for i in range(30))))

        for _ in range(2):  # and is not changed by it
            assert engine.fold(frame, Seen).numbers == list(range(300)), "summaries, or the order of merging them"

    def test_the_first_mistake_in_row_order_is_told(self, engine: Processor[Any]) -> None:
        frame = engine.open(Blocks(tuple(pa.table({"n": range(i * 10, i * 10 + 10)}) for i in range(6))))

        for work in (engine.map, engine.fold):
            with pytest.raises(DataError) as raised:
                work(frame, _refuse_from_20)

            assert raised.value.found == 20, "the mistake that is told is not the first"


def outcome(case: Case, dataset: Any, processor: Processor[Any], cache: Path) -> Outcome:
    """What preprocessing a case led to."""
    try:
        done = processed(case, dataset, processor, cache)
    except DataError as error:
        return Outcome(problems=tuple((p.path, p.message, repr(p.found)) for p in error.problems))
    splits = {}
    for name, split in done.splits.items():
        splits[name] = split.read(0, split.rows).append_column("row", split.row_numbers())
    return Outcome(done.key, done.metadata, splits)


def processed(case: Case, dataset: Any, processor: Processor[Any], cache: Path) -> Processed:
    """A case's dataset, preprocessed into a cache of its own."""
    datasets = Datasets(training_set=dataset) if case.as_training_set else Datasets(dataset=dataset)
    options = CacheOptions(directory=str(cache))
    return preprocess(load(case.config), datasets, seed=_SEED, processor=processor, cache=options)


class Seen:
    """A summary that shows the order it was merged in."""

    def __init__(self, table: pa.Table, first_row: int) -> None:
        self.numbers = table["n"].to_pylist()
        assert not self.numbers or self.numbers[0] == first_row

    def merge(self, other: Seen) -> None:
        self.numbers += other.numbers


def _typed_table() -> pa.Table:
    """Types of which an engine may think otherwise, nulls in each."""
    return pa.table(
        {
            "integers": pa.array([1, None, 1 << 60, 3, 4]),
            "floats": pa.array([0.5, None, float("inf"), -0.0, 1e300]),
            "truths": [True, None, False, True, None],
            "texts": ["x", None, "", "é\n", "null"],
            "nothing": pa.nulls(5),
            "times": pa.array([0, None, 2, 3, 4], pa.timestamp("us")),
            "lists": [[1], None, [], [2, 3], [4]],
        }
    )


def _itself(table: pa.Table) -> pa.Table:
    return table


def _with_first_row(table: pa.Table, first_row: int) -> tuple[pa.Table, int]:
    return table, first_row


def _refuse_from_20(table: pa.Table, first_row: int) -> Seen:
    for number in table["n"].to_pylist():
        if number >= 20:
            raise DataError("refused", found=number)
    return Seen(table, first_row)
