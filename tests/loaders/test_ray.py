"""The ray loader: the contract on a cluster, and what becomes of memory and of lost actors."""

from __future__ import annotations

import pytest
import ray
import torch

import core.loaders.ray
from core.backends.ray.cluster import Cluster, spilling
from core.errors import WorkerFailed
from core.loader import SHUFFLE_BLOCK_ROWS, BatchPlan, batch_rows
from core.loaders.feed import Epoch
from core.loaders.ray import RayLoader
from core.specs import LoaderOptions
from core.testing.loader import LoaderConformance, numbers, stored_split

STREAMED = LoaderOptions(fully_executed=False, window_size_bytes=300_000)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


class TestRay(LoaderConformance):
    loader = "ray"


@pytest.fixture
def split(tmp_path):
    return stored_split(tmp_path / "split", 60_000)


def test_what_an_epoch_took_is_given_back(split):
    loader = RayLoader(split, STREAMED, torch.device("cpu"))
    levels = []
    for epoch in range(8):
        assert sum(batch.rows for batch in loader.batches(BatchPlan(batch_size=1000), epoch)) == split.rows
        levels.append(used_bytes())
    loader.close()
    assert levels[-1] < 6 * 3 * SHUFFLE_BLOCK_ROWS * 32, f"bytes in the object store, windows of three blocks: {levels}"


def test_a_worker_that_leaves_an_epoch_holds_up_nobody(split):
    loader = RayLoader(split, STREAMED, torch.device("cpu"))
    of = Epoch(turn=99, seed=0, number=0, shuffle=True, window_rows=4096, first=0)
    feed, key = loader._feed, split.key

    def window(rank: int, number: int) -> list[object]:
        return ray.get(feed.window.remote(key, of, rank, 2, number), timeout=20)

    assert [len(window(rank, 0)) for rank in (0, 1)] == [1, 1]
    ray.get(feed.leave.remote(key, of, 1))
    assert window(1, 1) == []
    assert [len(window(0, number)) for number in (1, 2, 3)] == [1, 1, 1]
    ray.get(feed.leave.remote(key, of, 0))
    loader.close()


def test_without_its_actor_the_attempt_has_failed(split):
    loader = RayLoader(split, STREAMED, torch.device("cpu"))
    batches = loader.batches(BatchPlan(batch_size=1000), 0)
    next(batches)
    ray.kill(loader._feed)
    with pytest.raises(WorkerFailed, match="lost"):
        list(batches)
    loader.close()


def test_rows_that_are_not_held_all_the_time_come_all_the_same(split, monkeypatch):
    monkeypatch.setattr(core.loaders.ray, "RESIDENT_SHARE", 0)
    monkeypatch.setattr(core.loaders.ray, "SPILLED_CHUNK_BYTES", 200_000)
    monkeypatch.setattr(core.loaders.ray, "BLOCK_BYTES", 500_000)
    loader = RayLoader(split, LoaderOptions(), torch.device("cpu"))
    plan = BatchPlan(batch_size=900, seed=4, rank=1, world_size=2)
    found = numbers(loader.batches(plan, 3))
    loader.close()
    assert found == [rows.tolist() for _, rows in batch_rows(split.rows, plan, 3)]


def test_what_spills_is_said():
    node = {"CPU": 2, "object_store_memory": 1e9}
    assert spilling(Cluster(address=None, nodes=[node, node]), 900_000_000) is None
    line = spilling(Cluster(address=None, nodes=[node, {"CPU": 2, "object_store_memory": 5e8}]), 900_000_000)
    assert "0.9 GB" in line
    assert "an object store of 0.5 GB" in line


def used_bytes() -> int:
    """Of the object store."""
    free, whole = (of().get("object_store_memory", 0) for of in (ray.available_resources, ray.cluster_resources))
    return int(whole - free)
