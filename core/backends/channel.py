"""What the two sides of a worker group say to each other, whatever carries it."""

from __future__ import annotations

import contextlib
import re
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from core.errors import CoreError, WorkerFailed
from core.training.loop import Report

LOG_TAIL_LINES = 25
BATCH_REPORT_SECONDS = 0.1


class Channel(ABC):
    """A worker's side: `Report` to the coordinator.

    Messages are ``(kind, content)``: an `event` with its name and details, and once at the end `result`, `error` (a
    `CoreError`) or `crash` (what happened, as text).
    """

    def __init__(self, rank: int, *, every_batch: bool) -> None:
        self.rank = rank
        self.every_batch = every_batch
        self._next_batch = 0.0

    @abstractmethod
    def send(self, kind: str, content: Any) -> None:
        """Tell the coordinator, without waiting for it."""

    @abstractmethod
    def should_stop(self) -> bool:
        """Ask the coordinator."""

    def finish(self, kind: str, content: Any) -> None:
        """Tell how it ended: this process may end next, so the coordinator has it when this returns."""
        self.send(kind, content)

    @contextlib.contextmanager
    def failures_told(self) -> Iterator[None]:
        """Tell what is raised in the block, in the log and to the coordinator; it goes on from here."""
        try:
            yield
        except CoreError as error:
            print(error, file=sys.stderr, flush=True)
            self.finish("error", error)
            raise
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            self.finish("crash", f"failed with {type(error).__name__}: {error}")
            raise

    def __call__(self, event: str, /, **details: Any) -> None:
        if self.rank == 0 and self._wanted(event):
            self.send("event", (event, details))

    def _wanted(self, event: str) -> bool:
        if self.every_batch or event not in ("batch_start", "batch_end"):
            return True
        now = time.monotonic()
        if event == "batch_start" or now < self._next_batch:
            return False
        self._next_batch = now + BATCH_REPORT_SECONDS
        return True


@attrs.define
class Heard:
    """The coordinator's side: what the workers have come to."""

    report: Report
    results: dict[int, Any] = attrs.field(factory=dict)
    failures: dict[int, CoreError | str] = attrs.field(factory=dict)

    def take(self, rank: int, kind: str, content: Any) -> None:
        """One message."""
        if kind == "event":
            name, details = content
            self.report(name, **details)
        elif kind == "result":
            self.results[rank] = content
        else:
            self.failures.setdefault(rank, content)

    def silent(self, rank: int) -> bool:
        """Whether the worker has not said how it ended."""
        return rank not in self.results and rank not in self.failures

    def failure(self, workers: int, logs: Path) -> CoreError:
        """The error to show: one that was raised on purpose, else the first death that is not the echo of another."""
        on_purpose = [failure for failure in self.failures.values() if isinstance(failure, CoreError)]
        if on_purpose:
            return on_purpose[0]
        # A death comes before the errors of the workers that lost their peer.
        rank = min(self.failures, key=lambda r: (not str(self.failures[r]).startswith("was killed"), r))
        message = f"worker {rank} {self.failures[rank]}"
        waited_for = [str(other) for other in range(workers) if self.silent(other)]
        if waited_for and re.search("time(d )?out", message, re.IGNORECASE):
            message += f"; nothing was heard of worker {', '.join(waited_for)}, which hung or was stopped"
        log = logs / f"worker-{rank}.log"
        try:
            tail = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        except OSError:
            return WorkerFailed(message, path=str(log))
        quoted = "".join(f"\n    | {line}" for line in tail) or "\n    | (empty)"
        return WorkerFailed(f"{message}; the end of its log:{quoted}", path=str(log))
