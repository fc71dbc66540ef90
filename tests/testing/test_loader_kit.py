"""The conformance kit of loaders passes a right one, and tells what is wrong with each wrong one."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import torch

from core.errors import DataError
from core.loader import Batch, BatchPlan, Loader, batch_rows, tensors, window_rows
from core.testing.loader import ROWS, LoaderConformance, stored_split


class Right(Loader):
    """The shortest loader there is: reads each batch's rows by number. The wrong ones are made of it."""

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        size = window_rows(self.options, self.split.schema)
        for whole, rows in batch_rows(self.split.rows, plan, epoch, start, window_rows=size):
            yield self.batch(whole, rows)

    def batch(self, whole: int, rows: Any) -> Batch:
        low, high = (int(rows.min()), int(rows.max()) + 1) if len(rows) else (0, 0)
        table = self.split.read(low, high).take(rows - low)
        return Batch(columns=tensors(table), rows=len(rows), global_rows=whole)


class DropsTheLastBatch(Right):
    def batches(self, plan, epoch, start=0):
        found = list(super().batches(plan, epoch, start))
        yield from found[: len(found) - (found[-1].global_rows < plan.batch_size)] if found else []


class DoublesRowsToMakeSharesEven(Right):
    def batches(self, plan, epoch, start=0):
        for batch in super().batches(plan, epoch, start):
            even = -(-batch.global_rows // plan.world_size)
            short = even - batch.rows
            columns = {name: torch.cat([c, c[:short]]) for name, c in batch.columns.items()}
            yield attrs.evolve(batch, columns=columns, rows=len(columns["row"]))


class ShufflesItsOwnWay(Right):
    def batches(self, plan, epoch, start=0):
        return super().batches(attrs.evolve(plan, seed=plan.seed + 1), epoch, start)


class ForgetsTheEpoch(Right):
    def batches(self, plan, epoch, start=0):
        return super().batches(plan, 0, start)


class ForgetsToShuffleNot(Right):
    def batches(self, plan, epoch, start=0):
        return super().batches(attrs.evolve(plan, shuffle=True), epoch, start)


class ForgetsTheStart(Right):
    def batches(self, plan, epoch, start=0):
        return super().batches(plan, epoch, 0)


class IgnoresWindows(Right):
    def batches(self, plan, epoch, start=0):
        for whole, rows in batch_rows(self.split.rows, plan, epoch, start):
            yield self.batch(whole, rows)


class GivesToWhoeverComesFirst(Right):
    """A batch each to whichever worker asks, as queues do."""

    def batches(self, plan, epoch, start=0):
        for number, batch in enumerate(super().batches(attrs.evolve(plan, rank=0, world_size=1), epoch, start)):
            if number % plan.world_size == plan.rank:
                yield batch


class MakesFloatsOfCodes(Right):
    def batch(self, whole, rows):
        made = super().batch(whole, rows)
        return attrs.evolve(made, columns={**made.columns, "one": made.columns["one"].float()})


class FlattensLists(Right):
    def batch(self, whole, rows):
        made = super().batch(whole, rows)
        return attrs.evolve(made, columns={**made.columns, "one": made.columns["one"].squeeze(1)})


class FirstReadFirstServed(Right):
    """Rows in the order in which parts of a batch happen to be read."""

    def batch(self, whole, rows):
        parts: list[Any] = []

        def read(part):
            parts.append(super(FirstReadFirstServed, self).batch(whole, part))

        halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        threads = [threading.Thread(target=read, args=(half,)) for half in halves[::-1]]
        for thread in threads:
            thread.start()
            time.sleep(0.001)
        for thread in threads:
            thread.join()
        columns = {name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns}
        return Batch(columns=columns, rows=len(rows), global_rows=whole)


class OneIteratorForAll(Right):
    """Keeps its place in the object, so that a second iterator moves the first."""

    def batches(self, plan, epoch, start=0):
        self.place = super().batches(plan, epoch, start)
        while (batch := next(self.place, None)) is not None:
            yield batch


class ReadsEverythingFirst(Right):
    def batches(self, plan, epoch, start=0):
        yield from list(super().batches(plan, epoch, start))


class SwallowsErrors(Right):
    def batches(self, plan, epoch, start=0):
        try:
            yield from super().batches(plan, epoch, start)
        except DataError:
            return


class ForgetsTheFile(Right):
    def batches(self, plan, epoch, start=0):
        try:
            yield from super().batches(plan, epoch, start)
        except DataError:
            raise DataError("cannot read the data") from None


class LeavesAThread(Right):
    def batches(self, plan, epoch, start=0):
        threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
        yield from super().batches(plan, epoch, start)


WRONG = {
    (DropsTheLastBatch, "test_an_epoch_has_the_order_of_the_contract"): "rows are missing: 7 of",
    (DoublesRowsToMakeSharesEven, "test_workers_share_each_batch"): "rows come twice|not this worker's",
    (ShufflesItsOwnWay, "test_an_epoch_has_the_order_of_the_contract"): "order of rows",
    (ForgetsTheEpoch, "test_an_epoch_has_the_order_of_the_contract"): "order of rows",
    (ForgetsToShuffleNot, "test_an_epoch_has_the_order_of_the_contract"): "order of rows",
    (ForgetsTheStart, "test_an_epoch_can_go_on_from_any_batch"): "not this worker's, or come again: 1000",
    (IgnoresWindows, "test_an_epoch_has_the_order_of_the_contract"): "order of rows",
    (
        GivesToWhoeverComesFirst,
        "test_workers_share_each_batch",
    ): "some workers have fewer|rows are missing|not this worker's",
    (MakesFloatsOfCodes, "test_columns_keep_their_kind_and_values"): "type and shape of one",
    (FlattensLists, "test_columns_keep_their_kind_and_values"): "type and shape of one",
    (FirstReadFirstServed, "test_an_epoch_has_the_order_of_the_contract"): "order of rows",
    (OneIteratorForAll, "test_evaluation_goes_on_amid_training"): "rows are missing",
    (ReadsEverythingFirst, "test_a_window_at_a_time_is_read"): "rows were read and not handed out",
    (SwallowsErrors, "test_a_damaged_file_is_named"): "DID NOT RAISE",
    (ForgetsTheFile, "test_a_damaged_file_is_named"): "the file in",
    (LeavesAThread, "test_nothing_runs_on"): "threads still run",
}


def kit_of(kind: type[Loader]) -> LoaderConformance:
    class Kit(LoaderConformance):
        def make(self, split, *, held=True, windows=False):
            from core.loader import row_bytes
            from core.specs import LoaderOptions
            from core.testing.loader import _WINDOW_ROWS

            size = _WINDOW_ROWS * row_bytes(split.schema) if windows else None
            options = LoaderOptions(fully_executed=held, window_size_bytes=size)
            return kind(split, options, torch.device("cpu"))

    return Kit()


def check(kind: type[Loader], test: str, tmp_path) -> None:
    """Run one test of the kit on a loader, in windows, as pytest would."""
    kit = kit_of(kind)
    split = stored_split(tmp_path / "split", ROWS)
    made = kit.make(split, held=False, windows=True)
    given = {"split": split, "made": made, "held": False, "windows": True, "tmp_path": tmp_path / "own"}
    function = getattr(kit, test)
    function(**{name: given[name] for name in inspect.signature(function).parameters})


@pytest.mark.parametrize(("kind", "test"), WRONG, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_loader_fails_for_its_fault(kind, test, tmp_path):
    with pytest.raises((AssertionError, pytest.fail.Exception), match=WRONG[kind, test]):
        check(kind, test, tmp_path)


@pytest.mark.parametrize("test", sorted({test for _, test in WRONG} - {"test_a_window_at_a_time_is_read"}))
def test_a_right_loader_passes(test, tmp_path):
    check(Right, test, tmp_path)
