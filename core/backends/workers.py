"""A group of worker processes on this machine: started together, heard through one channel, ended together."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any, cast

from core.backends.channel import Channel, Heard
from core.backends.group import free_port, variables
from core.backends.interrupts import on_interrupt
from core.callbacks import Reporter
from core.errors import Interrupted, WorkerFailed
from core.training.loop import Report

ADDRESS, KEY = "CORE_WORKER_ADDRESS", "CORE_WORKER_KEY"
GRACE_SECONDS = 10.0
"""How long the others may take to notice that one has failed, before they are killed."""


def run_workers(job: Any, count: int, report: Report, logs: Path, *, every_batch: bool = False) -> Any:
    """Run `job` on `count` processes; returns rank 0's result.

    Batches are reported now and then, or, with `every_batch`, each one.

    Raises:
        CoreError: what a worker raised.
        WorkerFailed: a worker died, or raised anything else. Its log is quoted.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with _processes(count, logs) as (processes, connections):
        for connection in connections:
            connection.send((job, every_batch))
        with _forward_interrupts(processes) as asked:
            try:
                return _listen(processes, connections, report, logs)
            except WorkerFailed:
                if asked.is_set():  # a worker that had not begun its loop yet simply ends
                    raise Interrupted("stopped before training had begun") from None
                raise


def _listen(processes: list[subprocess.Popen[bytes]], connections: list[Connection], report: Report, logs: Path) -> Any:
    heard = Heard(report)
    open_ranks = {connection: rank for rank, connection in enumerate(connections)}
    deadline: float | None = None
    while open_ranks:
        for connection in cast("list[Connection]", wait(list(open_ranks), timeout=0.5)):
            rank = open_ranks[connection]
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                del open_ranks[connection]
                if heard.silent(rank):
                    heard.take(rank, "crash", cause_of_death(processes[rank]))
                continue
            if kind == "should_stop":
                connection.send(report.should_stop())
            else:
                heard.take(rank, kind, content)
        if heard.failures and deadline is None:
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            break
    if heard.failures:
        raise heard.failure(len(processes), logs)
    return heard.results[0]


def cause_of_death(process: subprocess.Popen[bytes]) -> str:
    """How a process ended, or is about to."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    code = process.returncode
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        note = " (often the kernel, out of memory)" if name == "SIGKILL" else ""
        return f"was killed by {name}{note}"
    return f"ended with exit status {code}"


@contextlib.contextmanager
def _processes(count: int, logs: Path) -> Iterator[tuple[list[subprocess.Popen[bytes]], list[Connection]]]:
    """`count` workers that have called back. They are dead when the block is left, however it is left."""
    key = secrets.token_hex(16)
    processes: list[subprocess.Popen[bytes]] = []
    connections: list[Connection] = []
    with tempfile.TemporaryDirectory(prefix="core-") as folder, contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener(os.path.join(folder, "s"), "AF_UNIX", authkey=bytes.fromhex(key)))
        port = free_port()
        threads = str(max(1, (os.cpu_count() or 1) // count))
        try:
            for rank in range(count):
                environment = {
                    "OMP_NUM_THREADS": threads,
                    **os.environ,
                    ADDRESS: str(listener.address),
                    KEY: key,
                    **variables(rank, count, port),
                }
                log = stack.enter_context(open(logs / f"worker-{rank}.log", "wb"))
                # -P: a folder named `core` where the user stands must not be taken for this package.
                # A session of its own: Ctrl-C reaches the coordinator alone, which ends the workers in order.
                command = [sys.executable, "-P", "-m", "core.backends.worker"]
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
            connections = _accept(listener, processes, logs)
            for connection in connections:
                stack.callback(connection.close)
            yield processes, connections
        finally:
            _end(processes)


def _accept(listener: Listener, processes: list[subprocess.Popen[bytes]], logs: Path) -> list[Connection]:
    """One connection a worker, in rank order."""
    by_rank: dict[int, Connection] = {}
    problems: list[BaseException] = []

    def accept() -> None:
        try:
            while len(by_rank) < len(processes):
                connection = listener.accept()
                by_rank[connection.recv()] = connection
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(timeout=0.1)
        for rank, process in enumerate(processes):
            if process.poll() is not None and rank not in by_rank:
                raise Heard(Reporter(), failures={rank: cause_of_death(process)}).failure(0, logs)
    if problems:
        raise problems[0]
    return [by_rank[rank] for rank in range(len(processes))]


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(timeout=0.2)
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _forward_interrupts(processes: list[subprocess.Popen[bytes]]) -> Iterator[threading.Event]:
    """Ctrl-C, once, asks the workers to save and stop; a second one ends them at once. The event tells of the first."""
    asked = threading.Event()

    def ask() -> None:
        asked.set()
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)

    with on_interrupt(ask):
        yield asked


class ProcessChannel(Channel):
    """A worker's side, over a socket of this machine."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, every_batch=False)
        self._connection = Client(os.environ[ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ.pop(KEY)))
        self._connection.send(rank)

    def receive(self) -> Any:
        """The job."""
        job, self.every_batch = self._connection.recv()
        return job

    def send(self, kind: str, content: Any) -> None:
        self._connection.send((kind, content))

    def should_stop(self) -> bool:
        self._connection.send(("should_stop", None))
        answer: bool = self._connection.recv()
        return answer
