"""Running a training job where it was placed: in this process, in a group of workers, or as one of a launcher's."""

from __future__ import annotations

import contextlib
import logging
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import torch

from core.backends.interrupts import on_interrupt
from core.backends.placement import Placement
from core.backends.workers import run_workers
from core.callbacks import Reporter
from core.errors import CoreError, Interrupted, WorkerFailed
from core.specs import GroupOptions
from core.storage import Location
from core.strategy import Strategy
from core.training.checkpoint import Progress
from core.training.job import Job, make_strategy, run_job

log = logging.getLogger("core")

NEWS_SECONDS = 1.0
"""Time between two signs of life of a worker that others wait for."""


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
                progress = _run_once(placement, job, reporter, folder)
            return Outcome(job=job, progress=progress)
        except WorkerFailed as error:
            if attempt == placement.retries:
                raise
            log.warning("%s\nrestarting the workers from the last checkpoint", error)
            job = attrs.evolve(job, resume=True)
    raise AssertionError("unreachable")


def _run_once(placement: Placement, job: Job, reporter: Reporter, logs: Path) -> Progress:
    if placement.kind == "ray":
        from core.backends.ray.train import run_on_cluster

        return run_on_cluster(job, placement.workers, placement.resources, reporter, logs)
    progress: Progress = run_workers(job, placement.workers, reporter, logs, every_batch=reporter.every_batch)
    return progress


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
    if strategy.rank != 0:
        return _awaited(strategy)
    failure: BaseException | None = None
    outcome: Job | CoreError
    with _others_waiting(strategy):
        try:
            outcome = prepare()
        except CoreError as error:
            outcome = failure = error
        except KeyboardInterrupt as error:
            outcome, failure = Interrupted("stopped before training had begun"), error
        except Exception as error:
            outcome, failure = WorkerFailed(f"worker 0 failed with {type(error).__name__}: {error}"), error
    try:
        content = torch.frombuffer(bytearray(pickle.dumps(outcome)), dtype=torch.uint8).to(strategy.device)
        _broadcast_size(strategy, len(content))
        strategy.broadcast(content)
    finally:
        if failure is not None:
            raise failure  # even where the others have gone, and could not be told
    assert isinstance(outcome, Job)
    return outcome


def _awaited(strategy: Strategy) -> Job:
    while not (size := _broadcast_size(strategy)):
        pass  # not yet
    content = strategy.broadcast(torch.empty(size, dtype=torch.uint8, device=strategy.device))
    outcome = pickle.loads(content.cpu().numpy().tobytes())
    if isinstance(outcome, CoreError):
        raise outcome
    assert isinstance(outcome, Job)
    return outcome


@contextlib.contextmanager
def _others_waiting(strategy: Strategy) -> Iterator[None]:
    """While rank 0 is busy here, tell the others so: their patience in one exchange ends with the group's timeout."""
    options = strategy.options
    pace = min(NEWS_SECONDS, options.timeout_s / 4) if isinstance(options, GroupOptions) else NEWS_SECONDS
    done = threading.Event()

    def tell() -> None:
        with contextlib.suppress(Exception):  # a worker has gone; what rank 0 has to say next will fail, and show it
            while not done.wait(pace):
                _broadcast_size(strategy)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _broadcast_size(strategy: Strategy, size: int = 0) -> int:
    """Rank 0's `size` of the message to come, 0 for not yet, on every worker."""
    return int(strategy.broadcast(torch.tensor(size, device=strategy.device)))
