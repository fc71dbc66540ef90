"""Batches: every row once, the same order for every number of workers, and columns of the right kind."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
import torch

from core.loader import SHUFFLE_BLOCK_ROWS, BatchPlan, epoch_order
from core.loaders.memory import MemoryLoader
from core.specs import LoaderOptions

ROWS = 3 * SHUFFLE_BLOCK_ROWS + 5
OPTIONS = {
    "whole": LoaderOptions(),
    "windows": LoaderOptions(window_size_bytes=60_000),
    "streamed": LoaderOptions(fully_executed=False, window_size_bytes=60_000),
    "streamed whole": LoaderOptions(fully_executed=False),
}


class Split:
    """Encoded rows in memory whose integer column is the row's number."""

    key = "numbers"

    def __init__(self, rows: int) -> None:
        numbers = np.arange(rows)
        self.rows = rows
        self.table = pa.table(
            {
                "x": pa.array(numbers / 2, pa.float32()),
                "row": pa.array(numbers, pa.int32()),
                "even": pa.array(numbers % 2 == 0),
                "z": pa.array(-numbers, pa.float32()),
                "tokens": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 3), pa.int32()), 3),
                "one": pa.FixedSizeListArray.from_arrays(pa.array(numbers, pa.int32()), 1),
            }
        )
        self.schema = self.table.schema

    def read(self, start: int, stop: int) -> pa.Table:
        return self.table.slice(start, stop - start)


def loader(options: str, rows: int = ROWS) -> MemoryLoader:
    return MemoryLoader(Split(rows), OPTIONS[options], torch.device("cpu"))


def flat(batches):
    return list(chain.from_iterable(batches))


def rows_of(made: MemoryLoader, plan: BatchPlan, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [batch.columns["row"].tolist() for batch in made.batches(plan, epoch, start)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_is_every_row_once(options, shuffle):
    batches = rows_of(loader(options), BatchPlan(batch_size=128, shuffle=shuffle))
    assert sorted(flat(batches)) == list(range(ROWS))
    assert {len(batch) for batch in batches[:-1]} == {128}
    assert (flat(batches) == list(range(ROWS))) == (not shuffle)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_the_batches_of_one(options, workers):
    made = loader(options)
    alone = rows_of(made, BatchPlan(batch_size=100, seed=5), epoch=2)
    shares = [
        rows_of(made, BatchPlan(batch_size=100, seed=5, rank=r, world_size=workers), epoch=2) for r in range(workers)
    ]
    assert [flat(parts) for parts in zip(*shares, strict=True)] == alone


def test_streaming_changes_nothing():
    plan = BatchPlan(batch_size=77, seed=1)
    assert rows_of(loader("windows"), plan) == rows_of(loader("streamed"), plan)
    assert rows_of(loader("whole"), plan) == rows_of(loader("streamed whole"), plan)
    assert rows_of(loader("whole"), plan) != rows_of(loader("windows"), plan)


@pytest.mark.parametrize("options", OPTIONS)
def test_an_epoch_can_go_on_from_any_batch(options):
    plan = BatchPlan(batch_size=500, seed=3)
    made = loader(options)
    assert rows_of(made, plan, epoch=1, start=7) == rows_of(made, plan, epoch=1)[7:]


def test_seed_and_epoch_decide_the_order():
    made = loader("whole", 100)
    orders = [
        flat(rows_of(made, BatchPlan(batch_size=10, seed=s), epoch=e)) for s, e in [(1, 0), (1, 1), (2, 0), (1, 0)]
    ]
    assert orders[0] == orders[3]
    assert len({tuple(order) for order in orders}) == 3


def test_columns_keep_their_kind_and_values():
    batch = next(loader("whole").batches(BatchPlan(batch_size=64, seed=9), 0))
    rows = batch.columns["row"]
    assert {name: (column.dtype, tuple(column.shape)) for name, column in batch.columns.items()} == {
        "x": (torch.float32, (64,)),
        "z": (torch.float32, (64,)),
        "row": (torch.int32, (64,)),
        "even": (torch.bool, (64,)),
        "tokens": (torch.int32, (64, 3)),
        "one": (torch.int32, (64, 1)),
    }
    assert batch.columns["x"].equal(rows / 2)
    assert batch.columns["z"].equal(-rows.float())
    assert batch.columns["even"].equal(rows % 2 == 0)
    assert batch.columns["tokens"].equal(rows[:, None].expand(64, 3))
    assert batch.columns["one"].equal(rows[:, None])


def test_a_batch_of_fewer_rows_than_workers_leaves_some_without():
    plan = BatchPlan(batch_size=32, rank=0, world_size=3)
    batch = list(loader("whole", 33).batches(plan, 0))[-1]
    assert (batch.rows, batch.global_rows) == (0, 1)
    assert batch.columns["tokens"].shape == (0, 3)


@pytest.mark.parametrize("window", [None, 1, 5_000, ROWS, 10 * ROWS])
def test_the_order_of_an_epoch_is_cut_into_windows(window):
    windows = list(epoch_order(ROWS, seed=0, epoch=0, shuffle=True, window_rows=window))
    assert sorted(np.concatenate(windows)) == list(range(ROWS))
    if window in (1, 5_000):
        assert len(windows) == -(-4 // max(1, -(-window // SHUFFLE_BLOCK_ROWS)))
    else:
        assert len(windows) == 1
