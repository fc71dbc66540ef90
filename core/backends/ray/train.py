"""One attempt to train on a Ray cluster: a group of workers from Ray Train, heard over the line."""

from __future__ import annotations

import functools
import logging
import pickle
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.config import LoggingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from core.backends.channel import Heard
from core.backends.interrupts import on_interrupt
from core.backends.ray import files
from core.backends.ray.cluster import wait_for_room
from core.backends.ray.line import Line, Message
from core.backends.ray.rendezvous import Rendezvous
from core.backends.ray.worker import work
from core.callbacks import Reporter
from core.errors import Interrupted, WorkerFailed
from core.training.checkpoint import Progress
from core.training.job import Job

LISTEN_SECONDS = 0.5
EXAMINE_SECONDS = 2.0
END_SECONDS = 15.0
"""How long a group that was told to die may take."""


def run_on_cluster(job: Job, workers: int, resources: Mapping[str, float], reporter: Reporter, logs: Path) -> Progress:
    """Run `job` once on `workers` workers of the cluster that this process is connected to.

    Raises:
        CoreError: what a worker raised.
        WorkerFailed: a worker died, or raised anything else. Its log, which `logs` keeps, is quoted.
    """
    wait_for_room(workers, resources)
    line: Any = ray.remote(num_cpus=0, max_concurrency=10_000, **_on_this_node())(Line).remote()
    attempt = _Attempt(functools.partial(work, job, line, reporter.every_batch), workers, resources)
    group = _Group(line, workers, reporter, logs)
    try:
        stop = threading.Event()
        with on_interrupt(stop.set):
            attempt.start()
            told = False
            while attempt.is_alive():
                group.listen(LISTEN_SECONDS)
                if stop.is_set() and not told:
                    told = True
                    line.give.remote("stop")
            group.listen(0.0)
            return group.outcome(attempt.error, stopped=stop.is_set())
    finally:
        if attempt.is_alive():
            line.give.remote("die")
            attempt.join(timeout=END_SECONDS)
        ray.kill(line)


class _Group:
    """What the driver knows of the workers of one attempt."""

    def __init__(self, line: Any, workers: int, reporter: Reporter, logs: Path) -> None:
        self._line = line
        self._workers = workers
        self._heard = Heard(reporter)
        self._actors: dict[int, bytes] = {}
        self._examined = False
        self._logs = [logs / f"worker-{rank}.log" for rank in range(workers)]
        logs.mkdir(parents=True, exist_ok=True)
        for log in self._logs:
            log.touch()

    def listen(self, seconds: float) -> None:
        """Take the messages there are, waiting up to `seconds` for the first."""
        try:
            messages: list[Message] = ray.get(self._line.take.remote(seconds))
        except ray.exceptions.RayActorError as error:
            raise WorkerFailed(f"the line to the workers broke: {error}") from error
        for message in messages:
            if message.kind == "here":
                self._actors[message.rank] = message.content
                continue
            content = pickle.loads(message.content)
            if message.number is not None:
                self._line.answer.remote(message.number, pickle.dumps(self._answer(message.kind, content)))
            elif message.kind == "log":
                with open(self._logs[message.rank], "ab") as log:
                    log.write(content)
            else:
                self._heard.take(message.rank, message.kind, content)
        if self._heard.failures and not self._examined:
            self._examined = True
            self._examine()

    def _answer(self, kind: str, content: Any) -> tuple[Any, OSError | None]:
        """An answer, or the exception in its place."""
        try:
            if kind == "should_stop":
                return self._heard.report.should_stop(), None
            return files.serve(*content), None
        except OSError as error:
            return None, error

    def _examine(self) -> None:
        """Look for a death whose echo the first failure may be, while Ray Train does not know of either yet."""
        if _is_client():  # which cannot take up an actor that it did not make
            return
        silent = {rank: pickle.loads(actor) for rank, actor in self._actors.items() if self._heard.silent(rank)}
        replies = {rank: actor.__ray_ready__.remote() for rank, actor in silent.items()}
        ray.wait(list(replies.values()), num_returns=len(replies), timeout=EXAMINE_SECONDS) if replies else None
        for rank, reply in replies.items():
            try:
                ray.get(reply, timeout=0)
            except ray.exceptions.RayActorError as error:
                self._heard.take(rank, "crash", _death(error))
            except ray.exceptions.GetTimeoutError:
                pass  # it hangs

    def outcome(self, error: Exception | None, *, stopped: bool) -> Progress:
        """The result of worker 0, or the error to show."""
        heard = self._heard
        if error is None:
            progress: Progress = heard.results[0]
            return progress
        if isinstance(error, WorkerGroupError):
            for rank, reason in error.worker_failures.items():
                if heard.silent(rank):
                    heard.take(rank, "crash", _death(reason))
        if heard.failures:
            raise heard.failure(self._workers, self._logs[0].parent)
        if stopped:
            raise Interrupted("stopped before training had begun")
        cause = error.controller_failure if isinstance(error, ControllerError) else error
        raise WorkerFailed(f"Ray could not start the workers: {cause}") from error


class _Attempt(threading.Thread):
    """`fit` in a thread of its own: this process goes on listening, and keeps its own handling of signals."""

    def __init__(self, function: Any, workers: int, resources: Mapping[str, float]) -> None:
        super().__init__(name="core-ray-train", daemon=True)
        self.error: Exception | None = None
        self._storage = tempfile.mkdtemp(prefix="core-ray-")  # Ray Train wants a place; nothing is kept in it
        self._trainer = DataParallelTrainer(
            function,
            backend_config=Rendezvous(),
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=bool(resources.get("GPU")), resources_per_worker=dict(resources)
            ),
            run_config=RunConfig(
                name="core",
                storage_path=self._storage,
                # Restarts are the caller's: an error of the user's is none to try again.
                failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),
                logging_config=LoggingConfig(log_level="ERROR"),
            ),
        )

    def run(self) -> None:
        try:
            self._trainer.fit()
        except Exception as error:
            self.error = error
        finally:
            shutil.rmtree(self._storage, ignore_errors=True)


def _on_this_node() -> dict[str, Any]:
    """Options that put an actor beside this process, where this process is on a node of the cluster."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if _is_client():
        return {}
    node = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def _is_client() -> bool:
    """Whether this process reaches the cluster through ``ray://`` and is no part of it."""
    return bool(ray.util.client.ray.is_connected())


def _death(reason: BaseException) -> str:
    """Of a worker that could not say itself what happened."""
    cause = getattr(reason, "health_check_failure", reason)
    if isinstance(cause, ray.exceptions.OutOfMemoryError):
        return f"was killed by Ray, whose node is short of memory: {cause}"
    if isinstance(cause, ray.exceptions.RayActorError):
        return f"was killed (often the kernel, out of memory), or its node was lost: {str(cause).splitlines()[-1]}"
    return f"failed with {type(cause).__name__}: {cause}"


logging.getLogger("ray.train").setLevel(logging.ERROR)
