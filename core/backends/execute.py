"""Running a training job where it was placed: in this process, in a group of workers, or as one of a launcher's."""

from __future__ import annotations

import contextlib
import logging
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import torch

from core.backends.placement import Placement
from core.backends.workers import on_interrupt, run_workers
from core.callbacks import Reporter
from core.errors import CoreError, WorkerFailed
from core.storage import Location
from core.strategy import Strategy
from core.training.checkpoint import Progress
from core.training.job import Job, make_strategy, run_job

log = logging.getLogger("core")


@attrs.frozen(kw_only=True)
class Outcome:
    """What a run came to.

    Attributes:
        coordinator: whether this process speaks for the run: writes its folder, and talks to the user.
    """

    job: Job
    progress: Progress
    coordinator: bool = True


def execute(placement: Placement, prepare: Callable[[], Job], reporter: Reporter) -> Outcome:
    """Prepare the job on one process, and train on all of them."""
    if placement.launcher is not None:
        return _as_launched(placement, prepare, reporter)
    job = prepare()
    if placement.in_process:
        asked = threading.Event()
        strategy = make_strategy(job.strategy, job.device)
        strategy.start()
        try:
            with on_interrupt(asked.set):
                return Outcome(job=job, progress=run_job(job, strategy, reporter, asked.is_set))
        finally:
            strategy.stop()
    return _in_workers(placement, job, reporter)


def _in_workers(placement: Placement, job: Job, reporter: Reporter) -> Outcome:
    for attempt in range(placement.retries + 1):
        logs = job.logs if attempt == 0 else job.logs.parent / f"logs-attempt-{attempt + 1}"
        try:
            with _written_to(logs) as folder:
                progress = run_workers(job, placement.workers, reporter, folder, every_batch=reporter.every_batch)
            return Outcome(job=job, progress=progress)
        except WorkerFailed as error:
            if attempt == placement.retries:
                raise
            log.warning("%s\nrestarting the workers from the last checkpoint", error)
            job = attrs.evolve(job, resume=True)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _written_to(place: Location) -> Iterator[Path]:
    """A local folder whose files end up in `place`."""
    if (local := place.local_path) is not None:
        yield Path(local)
        return
    with tempfile.TemporaryDirectory(prefix="core-") as folder:
        try:
            yield Path(folder)
        finally:
            for path in Path(folder).iterdir():
                (place / path.name).put(path)


def _as_launched(placement: Placement, prepare: Callable[[], Job], reporter: Reporter) -> Outcome:
    """Every process of the launcher comes here; rank 0 prepares the job for all of them."""
    strategy = make_strategy(placement.strategy, placement.device)
    strategy.start()
    try:
        job = _shared(strategy, prepare)
        asked = threading.Event()
        with on_interrupt(asked.set):
            report = reporter if strategy.rank == 0 else Reporter()
            progress = run_job(job, strategy, report, asked.is_set)
        return Outcome(job=job, progress=progress, coordinator=strategy.rank == 0)
    finally:
        strategy.stop()


def _shared(strategy: Strategy, prepare: Callable[[], Job]) -> Job:
    """Rank 0's job, or its error, on every worker."""
    outcome: Job | CoreError | None = None
    if strategy.rank == 0:
        try:
            outcome = prepare()
        except CoreError as error:
            outcome = error
    content: Any = torch.frombuffer(bytearray(pickle.dumps(outcome)), dtype=torch.uint8)
    size = strategy.broadcast(torch.tensor(len(content), device=strategy.device))
    if strategy.rank != 0:
        content = torch.empty(int(size), dtype=torch.uint8)
    received = strategy.broadcast(content.to(strategy.device)).cpu().numpy().tobytes()
    outcome = pickle.loads(received)
    if isinstance(outcome, CoreError):
        raise outcome
    assert isinstance(outcome, Job)
    return outcome
