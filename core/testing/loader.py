"""The conformance kit of batch loaders.

A plugin's tests subclass `LoaderConformance`, name the loader, and pytest does the rest::

    from core.testing.loader import LoaderConformance

    class TestLance(LoaderConformance):
        loader = "lance"
        options = {"readahead": 2}

A split of uneven Parquet parts goes through the loader, held and streamed, whole and in windows, for one worker and for
several, and must come out as `core.loader.epoch_order` says: every row once an epoch, in that order, whoever is slow.
What a failing test is about is in its name.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from core.config.structure import structure
from core.data.processed import ROW, Part, StoredSplit, checksum
from core.errors import DataError
from core.loader import SHUFFLE_BLOCK_ROWS, Batch, BatchPlan, EncodedSplit, Loader, epoch_order, row_bytes
from core.registry import registry
from core.specs import LoaderOptions
from core.storage import Location

ROWS = 5 * SHUFFLE_BLOCK_ROWS + 7
_PARTS = (1, 9000, 0, 3 * SHUFFLE_BLOCK_ROWS)
"""Rows of the first files; the rest is in a last one."""
_GROUP_ROWS = 1500
_WINDOW_ROWS = SHUFFLE_BLOCK_ROWS
_END_SECONDS = 2.0


class LoaderConformance:
    """Subclass it, under a name that pytest collects.

    Attributes:
        loader: the word a config uses.
        options: of the loader, as a config spells them, beside those of every loader.
        held, streamed: whether to try `fully_executed: true` and `false`.
        world_sizes: the numbers of workers to try.
    """

    loader: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    held: ClassVar[bool] = True
    streamed: ClassVar[bool] = True
    world_sizes: ClassVar[Sequence[int]] = (2, 3)

    def make(self, split: EncodedSplit, *, held: bool = True, windows: bool = False) -> Loader:
        """A loader of the split, as one worker has it. To be overridden where it takes more than options."""
        wanted: type[LoaderOptions] = registry().spec("loader", self.loader).options
        size = _WINDOW_ROWS * row_bytes(split.schema) if windows else None
        options, problems = structure({**self.options, "fully_executed": held, "window_size_bytes": size}, wanted)
        assert options is not None, problems
        made: Loader = registry().implementation("loader", self.loader)(split, options, torch.device("cpu"))
        return made

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "held" in metafunc.fixturenames:
            kinds = {"held": True, "streamed": False}
            tried = [word for word, kind in kinds.items() if (self.held if kind else self.streamed)]
            metafunc.parametrize("held", [kinds[word] for word in tried], ids=tried, scope="class")
        if "windows" in metafunc.fixturenames:
            metafunc.parametrize("windows", [False, True], ids=["whole", "windows"], scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def split(cls, tmp_path_factory: pytest.TempPathFactory) -> StoredSplit:
        return stored_split(tmp_path_factory.mktemp("split"), ROWS)

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, split: StoredSplit, held: bool, windows: bool) -> Iterator[Loader]:
        """One loader for all that asks it for the same rows in another order."""
        loader = cls().make(split, held=held, windows=windows)
        yield loader
        loader.close()

    def test_an_epoch_has_the_order_of_the_contract(self, made: Loader, windows: bool) -> None:
        for plan, epoch in [
            (BatchPlan(batch_size=128, seed=3), 0),
            (BatchPlan(batch_size=128, seed=3), 1),
            (BatchPlan(batch_size=_WINDOW_ROWS + 900, seed=4), 1),
            (BatchPlan(batch_size=1000, shuffle=False), 1),
        ]:
            self.assert_right(numbers(made.batches(plan, epoch)), plan, epoch, windows)

    def test_workers_share_each_batch(self, split: StoredSplit, held: bool, windows: bool) -> None:
        for world_size in self.world_sizes:
            plans = [BatchPlan(batch_size=500, seed=5, rank=rank, world_size=world_size) for rank in range(world_size)]
            loaders = [self.make(split, held=held, windows=windows) for _ in plans]
            try:
                steps = in_step(loaders, plans, epoch=2)
            finally:
                for made in loaders:
                    made.close()

            for rank, plan in enumerate(plans):
                self.assert_right(numbers(step[rank] for step in steps), plan, 2, windows)

    def test_an_epoch_can_go_on_from_any_batch(self, made: Loader, windows: bool) -> None:
        for start in (1, 17, 20, 21):
            plan = BatchPlan(batch_size=1000, seed=6)
            self.assert_right(numbers(made.batches(plan, 1, start=start)), plan, 1, windows, start=start)

    def test_columns_keep_their_kind_and_values(self, made: Loader) -> None:
        for batch in made.batches(BatchPlan(batch_size=ROWS - 1, seed=9), 0):
            expected = columns_of(batch.columns["row"].numpy())
            assert set(batch.columns) == set(expected), "columns"
            for name, column in expected.items():
                found = batch.columns[name]
                assert (found.dtype, found.shape) == (column.dtype, column.shape), f"type and shape of {name}"
                assert found.equal(column), f"values of {name}"

    def test_few_rows(self, held: bool, tmp_path: Path) -> None:
        for rows in (0, 1, 33):
            split = stored_split(tmp_path / str(rows), rows)
            loaders = [self.make(split, held=held, windows=True) for _ in range(3)]
            try:
                for shuffle in (False, True):
                    plans = [BatchPlan(batch_size=32, rank=rank, world_size=3, shuffle=shuffle) for rank in range(3)]
                    steps = in_step(loaders, plans, epoch=0)
                    for plan in plans:
                        self.assert_right(numbers(step[plan.rank] for step in steps), plan, 0, True, rows=rows)
                    for batch in (batch for step in steps for batch in step):
                        assert {len(column) for column in batch.columns.values()} == {batch.rows}
                        assert batch.columns["tokens"].shape[1] == 3, "width of a batch without rows"
            finally:
                for made in loaders:
                    made.close()

    def test_the_order_does_not_depend_on_time(self, held: bool, tmp_path: Path) -> None:
        split = recorded(stored_split(tmp_path, ROWS), tmp_path / "reads", slow=True)
        made = self.make(split, held=held, windows=True)
        plan = BatchPlan(batch_size=2000, seed=7)
        found = []
        try:
            for number, batch in enumerate(made.batches(plan, 0)):
                found.append(batch)
                time.sleep(0.02 * (number % 3))
        finally:
            made.close()
        self.assert_right(numbers(found), plan, 0, True)

    def test_a_window_at_a_time_is_read(self, tmp_path: Path) -> None:
        if not self.streamed:
            pytest.skip("it holds all rows")
        split = recorded(stored_split(tmp_path, 4 * ROWS), tmp_path / "reads")
        made = self.make(split, held=False, windows=True)
        batches = made.batches(BatchPlan(batch_size=1000, seed=8), 0)
        handed = 0
        try:
            for batch in batches:
                handed += batch.rows
                time.sleep(0.01)  # time to read too far ahead
                ahead = sum(stop - start for start, stop in reads(tmp_path / "reads")) - handed
                assert ahead < 6 * _WINDOW_ROWS, f"{ahead} rows were read and not handed out, {_WINDOW_ROWS} a window"
        finally:
            made.close()
        assert handed == 4 * ROWS

    def test_evaluation_goes_on_amid_training(self, made: Loader, windows: bool) -> None:
        training, evaluation = BatchPlan(batch_size=3000, seed=1), BatchPlan(batch_size=5000, shuffle=False)
        batches = made.batches(training, 0)
        found = [next(batches)]
        self.assert_right(numbers(made.batches(evaluation, 0)), evaluation, 0, windows)
        self.assert_right(numbers([*found, *batches]), training, 0, windows)

    def test_an_epoch_may_be_left(self, made: Loader, windows: bool) -> None:
        plan = BatchPlan(batch_size=700, seed=2)
        for _ in range(3):
            for batch in made.batches(plan, 0):
                assert batch.rows == 700
                break
        self.assert_right(numbers(made.batches(plan, 0)), plan, 0, windows)

    def test_a_damaged_file_is_named(self, held: bool, tmp_path: Path) -> None:
        split = stored_split(tmp_path, ROWS + 1)  # another one than those that are whole
        damage(tmp_path / split.parts[3].file, group=4)

        with pytest.raises(DataError) as raised:
            self._read_through(split, held=held)

        [problem] = raised.value.problems
        assert split.parts[3].file in problem.path, f"the file in {problem.path!r}"
        assert "row group 4" in problem.message, f"the row group in {problem.message!r}"

    def _read_through(self, split: EncodedSplit, *, held: bool) -> None:
        made = self.make(split, held=held, windows=True)
        try:
            for _ in made.batches(BatchPlan(batch_size=1000, shuffle=False), 0):
                pass
        finally:
            made.close()

    def test_nothing_runs_on(self, split: StoredSplit, held: bool) -> None:
        before = set(threading.enumerate())
        made = self.make(split, held=held, windows=True)
        batches = made.batches(BatchPlan(batch_size=10), 0)
        next(batches)
        del batches
        made.close()

        deadline = time.monotonic() + _END_SECONDS
        while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, f"threads still run: {left}"

    @staticmethod
    def assert_right(
        found: list[list[int]], plan: BatchPlan, epoch: int, windows: bool, *, start: int = 0, rows: int = ROWS
    ) -> None:
        """The batches are those of the contract; if not, what is wrong with them is told."""
        size = _WINDOW_ROWS if windows else None
        order = epoch_order(rows, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle, window_rows=size)
        whole = np.concatenate([np.empty(0, dtype=np.int64), *order])
        batches = [whole[first : first + plan.batch_size] for first in range(0, rows, plan.batch_size)][start:]
        expected = [batch[plan.share(len(batch))].tolist() for batch in batches]
        if found == expected:
            return
        flat, right = [n for batch in found for n in batch], [n for batch in expected for n in batch]
        if len(set(flat)) < len(flat):
            raise AssertionError(f"rows come twice: {len(flat)} rows, {len(set(flat))} different ones")
        if set(right) - set(flat):
            raise AssertionError(f"rows are missing: {len(set(right) - set(flat))} of {len(right)}")
        if set(flat) - set(right):
            raise AssertionError(f"rows are not this worker's, or come again: {len(set(flat) - set(right))}")
        if flat != right:
            raise AssertionError("the order of rows is not that of the contract")
        raise AssertionError(f"batches have {[len(b) for b in found]} rows, not {[len(b) for b in expected]}")


def in_step(loaders: Sequence[Loader], plans: Sequence[BatchPlan], epoch: int) -> list[tuple[Batch, ...]]:
    """The batches of an epoch as workers that train together take them: each worker's share of one after the other."""
    at_work = [made.batches(plan, epoch) for made, plan in zip(loaders, plans, strict=True)]
    steps = list(itertools.zip_longest(*at_work))
    assert all(batch is not None for step in steps[-1:] for batch in step), "some workers have fewer batches"
    return steps


def numbers(batches: Iterator[Batch] | Sequence[Batch]) -> list[list[int]]:
    """The numbers of the rows of each batch."""
    return [batch.columns["row"].tolist() for batch in batches]


def columns_of(rows: np.ndarray) -> dict[str, torch.Tensor]:
    """What a batch of these rows holds, in a split that `stored_split` made."""
    numbers = torch.from_numpy(rows.astype(np.int32))
    return {
        "x": numbers / 2,
        "row": numbers,
        "even": numbers % 2 == 0,
        "z": -numbers.float(),
        "tokens": numbers[:, None] + torch.arange(3, dtype=torch.int32),
        "one": numbers[:, None] + 1,
    }


def stored_split(folder: Path, rows: int) -> StoredSplit:
    """A split as preprocessing keeps it, each of whose columns tells the row's number, in uneven parts."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = np.minimum(np.cumsum([0, *_PARTS, rows]), rows)
    parts, schema = [], pa.schema([])
    for number, (first, last) in enumerate(itertools.pairwise(edges)):
        table = _table(np.arange(first, last))
        schema = table.schema
        path = folder / f"part-{number}.parquet"
        pq.write_table(table, path, row_group_size=_GROUP_ROWS, compression="none")
        data = path.read_bytes()
        parts.append(Part(file=path.name, rows=table.num_rows, bytes=len(data), blake2b=checksum(data)))
    return StoredSplit(folder=Location(str(folder)), parts=tuple(parts), stored_schema=schema)


def _table(rows: np.ndarray) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, values in columns_of(rows).items():
        array = values.numpy()
        columns[name] = pa.array(array.ravel())
        if array.ndim == 2:
            columns[name] = pa.FixedSizeListArray.from_arrays(columns[name], array.shape[1])
    return pa.table({**columns, ROW: rows.astype(np.int64)})


@attrs.define(kw_only=True, eq=False)
class RecordedSplit(StoredSplit):
    """A split that writes down what is read of it, in whatever process.

    Attributes:
        log: where.
        slow: take more or less time for it.
    """

    log: Path = Path()
    slow: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        return (*super().__getstate__(), self.log, self.slow)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        folder, parts, schema, log, slow = state
        self.__init__(folder=folder, parts=parts, stored_schema=schema, log=log, slow=slow)  # type: ignore[misc]

    def read(self, start: int, stop: int) -> pa.Table:
        if self.slow:
            time.sleep(0.01 * (start // SHUFFLE_BLOCK_ROWS * 7 % 5))
        with open(self.log, "a") as file:
            file.write(f"{start} {min(stop, self.rows)}\n")
        return super().read(start, stop)


def recorded(split: StoredSplit, log: Path, *, slow: bool = False) -> RecordedSplit:
    """The same split, observed."""
    return RecordedSplit(folder=split.folder, parts=split.parts, stored_schema=split.stored_schema, log=log, slow=slow)


def reads(log: Path) -> list[tuple[int, int]]:
    """First row, and the one after the last, of each read."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(start), int(stop)) for start, stop in map(str.split, lines)]


def damage(path: Path, group: int) -> None:
    """Make one row group of a Parquet file unreadable; its footer is as it was."""
    column = pq.read_metadata(path).row_group(group).column(0)
    with open(path, "r+b") as file:
        file.seek(column.dictionary_page_offset or column.data_page_offset)
        file.write(b"\xff" * 16)
