"""Prediction on a Ray cluster: blocks stream through a pool of actors of Ray Data, and their results back in order."""

from __future__ import annotations

import logging
import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import ray
import ray.data

from core.backends.placement import Prediction
from core.backends.ray.cluster import wait_for_room
from core.errors import CoreError, StorageError, WorkerFailed
from core.prediction.work import Advance, Outcome, Result, Work, network_of

if TYPE_CHECKING:
    from torch import Tensor

    from core.data.encode import InputBlock
    from core.prediction.parts import Parts

IN_FLIGHT = 2
"""Blocks that an actor has: one is worked on, the next waits."""
ATTEMPTS = 3
"""Actors that may be lost while they work on one block."""


def outcomes_on_cluster(
    placement: Prediction, work: Work, blocks: Sequence[tuple[int, InputBlock]], parts: Parts | None, advance: Advance
) -> Iterator[Outcome]:
    """See `core.prediction.engines.outcomes`."""
    workers = min(placement.workers, len(blocks))
    wait_for_room(workers, placement.resources)
    # A frame's rows are put into the object store once, block by block; actors take those of a file from the file.
    held = {number: ray.put(block.portable()) for number, block in blocks if not block.of_file}
    items = [{"number": number, "block": b"" if number in held else pickle.dumps(block)} for number, block in blocks]
    own = dict(placement.resources)
    tally = ray.remote(num_cpus=0)(_Tally).remote()
    results = _dataset(items).map_batches(
        _Actor,
        batch_size=None,
        batch_format="pyarrow",
        fn_constructor_args=(work, parts, ray.put(work.saved.weights()), held, tally),
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=IN_FLIGHT),
        num_cpus=own.pop("CPU", 0),
        num_gpus=own.pop("GPU", 0) or None,
        resources={name: amount for name, amount in own.items() if amount} or None,
    )
    try:
        # Blocks of one row: a batch is a result, and none is fetched before it is wanted.
        batches = iter(results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
        for batch in _failures_told(batches):
            number, outcome = pickle.loads(batch.column("outcome")[0].as_buffer())
            if isinstance(outcome, Result):
                advance(outcome.rows)
            yield number, _other_disk_told(outcome)
    finally:
        ray.kill(tally)


def _dataset(items: list[dict[str, Any]]) -> ray.data.Dataset:
    """One block an item, put here: a source without tasks holds no CPU that the actors need."""
    dataset = ray.data.from_items(items, override_num_blocks=len(items))
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    return dataset


class _Tally:
    """Counts how often each block was begun. Ray Data itself gives a block of a lost actor to others without end."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        self._begun[number] += 1
        return self._begun[number]


class _Actor:
    """Has the network, and does a block at a time."""

    def __init__(self, work: Work, parts: Parts | None, weights: Any, held: Mapping[int, Any], tally: Any) -> None:
        self._work, self._parts, self._held, self._tally = work, parts, held, tally
        found: dict[str, Tensor] = ray.get(weights)
        self._network = network_of(work.saved, work.device, found)

    def __call__(self, item: pa.Table) -> pa.Table:
        number = item.column("number")[0].as_py()
        if ray.get(self._tally.begin.remote(number)) > ATTEMPTS:
            return _row((number, _given_up()))
        block = ray.get(self._held[number]) if number in self._held else pickle.loads(item.column("block")[0].as_py())
        outcome = next(self._work.outcomes(self._network, [(number, block)], parts=self._parts))
        return _row(outcome)


def _row(outcome: Outcome) -> pa.Table:
    return pa.table({"outcome": pa.array([pickle.dumps(outcome)], pa.large_binary())})


def _given_up() -> WorkerFailed:
    return WorkerFailed(
        f"{ATTEMPTS} actors were lost while they predicted one part of the dataset (often the kernel, out of memory)",
        path="backend.trainer.num_workers",
        hint="Fewer workers on a node, or a smaller --batch-size, need less memory.",
    )


def _failures_told(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    try:
        yield from batches
    except (GeneratorExit, KeyboardInterrupt, CoreError):
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise WorkerFailed(f"the actors could not predict the dataset: {reason}") from error


def _other_disk_told(outcome: Result | CoreError) -> Result | CoreError:
    """Say what is wrong where an actor misses a file that is here: another machine looked for it."""
    if not isinstance(outcome, StorageError) or "No such file" not in outcome.problems[0].message:
        return outcome
    if not os.path.exists(outcome.path):
        return outcome
    hint = (
        "It is there on this machine, and a node of the cluster does not see it. Use a place that all nodes reach, "
        "such as s3:// or a shared disk, or --backend local, which predicts on this machine."
    )
    return StorageError([attrs.evolve(outcome.problems[0], hint=hint), *outcome.problems[1:]])


logging.getLogger("ray.data").setLevel(logging.ERROR)
