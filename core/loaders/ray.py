"""Batches through Ray Data: rows lie in the object store, whole or window by window, read once for all workers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import ray
import torch
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from core.backends.ray.files import PROTOCOL
from core.data.processed import StoredSplit
from core.errors import ConfigError, WorkerFailed
from core.loader import (
    SHUFFLE_BLOCK_ROWS,
    Batch,
    BatchPlan,
    Loader,
    batch_runs,
    epoch_order,
    streamed_rows,
    window_rows,
)
from core.loaders.chunks import CHUNK_BYTES, Chunk, gathered, handed_out
from core.loaders.feed import BLOCK_BYTES, Epoch, Feed, from_arrow
from core.loaders.rows import Layout, Rows
from core.specs import LoaderOptions

PATIENCE_SECONDS = 60.0
"""How long a worker that reaches no file waits for one that does."""

CALLS = 1000
"""Of workers, that an actor attends to at once: each has one or two."""

RESIDENT_SHARE = 0.5
"""Share of a node's object store that all rows may take for a worker to keep hold of them."""

BLOCK_SHARE_BYTES = 1 << 15
"""What a worker gathers at once, at least, from each block that it gathers from."""

SPILLED_CHUNK_BYTES = 256 << 20
"""What it gathers at once where blocks may have to come back from disk."""


class RayLoader(Loader):
    """All workers of a group take their rows from one `Feed`, found by the address at which the group meets."""

    split: StoredSplit

    def __init__(self, split: StoredSplit, options: LoaderOptions, device: torch.device) -> None:
        super().__init__(split, options, device)
        self._key, self._layout = split.key, Layout.of(split.schema)
        self._turn = 0
        self._feed: Any = None
        self._blocks: _Blocks | None = None
        if split.rows:
            self._name, self._feed = _enter(split)
            _got(self._feed.know.remote(split))
            try:
                if options.fully_executed:
                    self._blocks = _Blocks(split, self._feed)
            except BaseException:
                self.close()
                raise

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[Batch]:
        if not self.split.rows:
            return
        if self._blocks is not None:
            window = window_rows(self.options, self.split.schema)
            runs = batch_runs(self.split.rows, plan, epoch, start, window_rows=window)
            yield from handed_out(gathered(runs, self._blocks.take, self._blocks.most_rows), self.device)
            return
        yield from handed_out(self._streamed(plan, epoch, start), self.device)

    def close(self) -> None:
        if self._feed is not None:
            _let_go(self._name)
        self._feed = self._blocks = None

    def _streamed(self, plan: BatchPlan, epoch: int, start: int) -> Iterator[Chunk]:
        """The batches that end in a window, one window after the other; the next one is asked for beforehand."""
        size, layout, feed = plan.batch_size, self._layout, self._feed
        window = streamed_rows(self.options, self.split.schema, shuffle=plan.shuffle)
        order = epoch_order(self.split.rows, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle, window_rows=window)
        first = next((k for k in range(len(order)) if order.start(k + 1) > start * size), len(order))
        if first == len(order):
            return
        of = Epoch(
            turn=self._turn,
            seed=plan.seed,
            number=epoch,
            shuffle=plan.shuffle,
            window_rows=window,
            first=first,
        )
        self._turn += 1

        def ask(number: int) -> Any:
            return (
                feed.window.remote(self._key, of, plan.rank, plan.world_size, number) if number < len(order) else None
            )

        coming = ask(first)
        try:
            rest = Rows.empty(layout, 0)
            skip = start * size - order.start(first)
            for number in range(first, len(order)):
                [reference] = _got(coming)
                found = from_arrow(layout, _got(reference))
                coming = ask(number + 1)
                found = found[skip:]
                skip = 0
                if len(rest):  # a batch that began in the window before
                    missing = min(size - len(rest), len(found))
                    rest = Rows.concatenate([rest, found[:missing]])
                    found = found[missing:]
                    if len(rest) == size:
                        yield Chunk(size, 1, rest[plan.share(size)])
                        rest = Rows.empty(layout, 0)
                if count := len(found) // size:
                    whole = found.matrix[: count * size].reshape(count, size, layout.words)
                    mine = np.array(whole[:, plan.share(size)]).reshape(-1, layout.words)  # the store's is read-only
                    del whole
                    yield Chunk(size, count, Rows(layout, mine))
                    del mine
                if len(found) > count * size:
                    rest = Rows.concatenate([rest, found[count * size :]])
                del found, reference
            if len(rest):
                yield Chunk(len(rest), 1, rest[plan.share(len(rest))])
        finally:
            with contextlib.suppress(WorkerFailed):  # whoever made it has ended
                if coming is not None:
                    _got(coming)  # Ray may run calls in another order, and this one would begin the epoch anew
                _got(feed.leave.remote(self._key, of, plan.rank))


class _Blocks:
    """All rows, in the object store of this node or of others.

    Attributes:
        most_rows: what to take at once.
    """

    def __init__(self, split: StoredSplit, feed: Any) -> None:
        self._layout = layout = Layout.of(split.schema)
        record = 4 * layout.words
        self._block_rows = max(1, BLOCK_BYTES // record // SHUFFLE_BLOCK_ROWS) * SHUFFLE_BLOCK_ROWS
        references = _got(feed.held.remote(split.key, self._block_rows))
        self._get: list[Callable[[], Rows]]
        if split.rows * record <= RESIDENT_SHARE * _store_bytes():
            blocks = [from_arrow(layout, table) for table in _got(references)]
            self._get = [lambda block=block: block for block in blocks]  # type: ignore[misc]
            chunk_bytes = max(CHUNK_BYTES, BLOCK_SHARE_BYTES * len(blocks))
        else:
            self._get = [lambda r=r: from_arrow(layout, _got(r)) for r in references]  # type: ignore[misc]
            chunk_bytes = SPILLED_CHUNK_BYTES
        self.most_rows = max(1, chunk_bytes // record)

    def take(self, numbers: np.ndarray) -> Rows:
        """These rows, each block of them gathered at once."""
        if len(self._get) == 1:
            return self._get[0]().take(numbers)
        found = Rows.empty(self._layout, len(numbers))
        block, place = np.divmod(numbers, self._block_rows)
        order = np.argsort(block, kind="stable")
        edges = np.searchsorted(block[order], np.arange(len(self._get) + 1))
        for number in np.flatnonzero(np.diff(edges)):
            mine = order[edges[number] : edges[number + 1]]
            found.matrix[mine] = self._get[number]().matrix.take(place[mine], axis=0)
        return found


@attrs.define
class _Shared:
    """An actor as this process has it.

    Attributes:
        users: loaders of this process that use it.
        made_here: whether it ends with them.
    """

    actor: Any
    made_here: bool
    users: int = 0


_feeds: dict[str, _Shared] = {}


def _enter(split: StoredSplit) -> tuple[str, Any]:
    """The actor of this group, and the name by which to let it go."""
    # Each attempt meets at another address. Loaders of one process share it.
    name = "core-feed-{}-{}".format(
        os.environ.get("MASTER_ADDR", "process"), os.environ.get("MASTER_PORT", str(os.getpid()))
    )
    if name not in _feeds:
        _feeds[name] = _found_or_made(name, split)
    _feeds[name].users += 1
    return name, _feeds[name].actor


def _let_go(name: str) -> None:
    shared = _feeds[name]
    shared.users -= 1
    if not shared.users:
        del _feeds[name]
        if shared.made_here:
            ray.kill(shared.actor)


def _found_or_made(name: str, split: StoredSplit) -> _Shared:
    """Made by the first worker to come that reaches the files.

    Raises:
        ConfigError: no worker reaches them.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ValueError, RayActorError):  # none yet; another was first; one that is just ending
            if _reached(split):
                here = _here(split)
                options = {"name": name, "num_cpus": 0, "max_concurrency": CALLS, **here}
                actor = ray.remote(Feed).options(**options).remote(here)
                ray.get(actor.__ray_ready__.remote())
                return _Shared(actor, made_here=True)
        with contextlib.suppress(ValueError, RayActorError):
            actor = ray.get_actor(name)
            ray.get(actor.__ray_ready__.remote())
            return _Shared(actor, made_here=False)
        time.sleep(0.1)
    raise ConfigError(
        "the processed data lies on the disk of a node that trains nothing, and Ray Data cannot read it from here",
        path="backend.loader.type",
        found="ray",
        expected="a cache that every node reaches",
        hint="Set backend.cache_dir to shared storage, such as s3://…, or use loader: {type: memory}.",
    )


def _reached(split: StoredSplit) -> bool:
    return not split.folder.url.startswith(f"{PROTOCOL}://")


def _here(split: StoredSplit) -> dict[str, Any]:
    """Options of Ray that keep a task or actor on this node, if what it reads is on its disk."""
    if split.folder.local_path is None:
        return {}
    node = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def _store_bytes() -> float:
    """Room of this node's object store."""
    node = ray.get_runtime_context().get_node_id()
    return float(
        next(n["Resources"].get("object_store_memory", 0) for n in ray.nodes() if n["NodeID"] == node and n["Alive"])
    )


def _got(reference: Any) -> Any:
    """What a reference stands for.

    Raises:
        WorkerFailed: it is lost.
    """
    try:
        return ray.get(reference)
    except RayError as error:
        raise WorkerFailed(f"the actor that reads for the workers, or what it had read, is lost: {error}") from error
