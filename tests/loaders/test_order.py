"""The order of rows in training, which every loader has to keep."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from core.loader import SHUFFLE_BLOCK_ROWS, BatchPlan, batch_rows, epoch_order, tensors, window_rows
from core.specs import LoaderOptions

ROWS = 3 * SHUFFLE_BLOCK_ROWS + 5


@pytest.mark.parametrize("window", [None, 1, 5_000, ROWS, 10 * ROWS])
def test_an_epoch_is_cut_into_windows(window):
    windows = list(epoch_order(ROWS, seed=0, epoch=0, shuffle=True, window_rows=window))
    assert sorted(np.concatenate(windows)) == list(range(ROWS))
    if window in (1, 5_000):
        assert len(windows) == -(-4 // max(1, -(-window // SHUFFLE_BLOCK_ROWS)))
    else:
        assert len(windows) == 1


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("rows", [0, 5, SHUFFLE_BLOCK_ROWS, ROWS])
def test_the_windows_before_one_are_counted(rows, shuffle):
    for epoch in range(8):  # the short block is put elsewhere in each
        order = epoch_order(rows, seed=0, epoch=epoch, shuffle=shuffle, window_rows=5)
        sizes = [len(window) for window in order]
        assert len(sizes) == len(order)
        assert [order.start(number) for number in range(len(order) + 1)] == np.cumsum([0, *sizes]).tolist()


def test_seed_and_epoch_decide():
    orders = [
        np.concatenate(list(epoch_order(100, seed=seed, epoch=epoch, shuffle=True))).tolist()
        for seed, epoch in [(1, 0), (1, 1), (2, 0), (1, 0)]
    ]
    assert orders[0] == orders[3]
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize("window", [None, 2 * SHUFFLE_BLOCK_ROWS])
def test_batches_are_cut_from_it_and_shared(window):
    whole = np.concatenate(list(epoch_order(ROWS, seed=7, epoch=2, shuffle=True, window_rows=window)))
    shares = [
        list(batch_rows(ROWS, BatchPlan(batch_size=100, seed=7, rank=rank, world_size=3), 2, 4, window_rows=window))
        for rank in range(3)
    ]
    batches = [np.concatenate([rows for _, rows in share]) for share in zip(*shares, strict=True)]
    assert np.concatenate(batches).tolist() == whole[400:].tolist()
    assert [len(batch) for batch in batches] == [size for size, _ in shares[0]] == [100] * 118 + [93]
    assert {len(rows) for _, rows in shares[1][:-1]} == {33}


def test_the_size_of_a_window_is_that_of_its_rows():
    schema = pa.schema({"x": pa.float32(), "flag": pa.bool_(), "tokens": pa.list_(pa.int32(), 3)})
    assert window_rows(LoaderOptions(), schema) is None
    assert window_rows(LoaderOptions(window_size_bytes=1700), schema) == 100
    assert window_rows(LoaderOptions(window_size_bytes=1), schema) == 1


def test_encoded_rows_become_tensors():
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4, 5, 6], pa.int32()), 2)
    table = pa.table({"x": pa.array([0.5, 1.5, 2.5], pa.float32()), "flag": [True, False, True], "tokens": lists})
    found = tensors(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    assert found["x"].equal(torch.tensor([0.5, 1.5, 2.5]))
    assert found["flag"].equal(torch.tensor([True, False, True]))
    assert found["tokens"].equal(torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.int32))
    assert tensors(table.slice(0, 0))["tokens"].shape == (0, 2)
