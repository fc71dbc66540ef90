"""What a worker on a Ray cluster runs, inside Ray Train."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import ray
from ray import cloudpickle

from core.backends.channel import Channel
from core.backends.ray.files import use, within_reach
from core.data.processed import MANIFEST
from core.errors import CoreError
from core.storage import Location

LOG_BYTES = 1 << 16
ECHO_SECONDS = 4.0
"""How long a worker that failed stays: was it the death of another that it met, the driver shall find that first."""


class LineChannel(Channel):
    """A worker's side, over the line.

    Ray may run the calls of one caller in another order than they were made, so a thread makes one at a time, with all
    that there is to say by then.
    """

    def __init__(self, rank: int, line: Any, *, every_batch: bool) -> None:
        super().__init__(rank, every_batch=every_batch)
        self._line = line
        self._unsaid: queue.SimpleQueue[tuple[str, bytes] | threading.Event] = queue.SimpleQueue()
        threading.Thread(target=self._say, daemon=True).start()

    def send(self, kind: str, content: Any) -> None:
        self._unsaid.put((kind, cloudpickle.dumps(content)))

    def ask(self, kind: str, content: Any = None) -> Any:
        """What the driver answers, or its exception, raised."""
        self._wait_until_said()
        answer = ray.get(self._line.ask.remote(self.rank, kind, cloudpickle.dumps(content)))
        value, error = pickle.loads(answer)
        if error is not None:
            raise error
        return value

    def should_stop(self) -> bool:
        return bool(self.ask("should_stop"))

    def finish(self, kind: str, content: Any) -> None:
        self.send(kind, content)
        self._wait_until_said()

    def _wait_until_said(self) -> None:
        said = threading.Event()
        self._unsaid.put(said)
        said.wait()

    def _say(self) -> None:
        while True:
            due = [self._unsaid.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    due.append(self._unsaid.get_nowait())
            messages = [item for item in due if isinstance(item, tuple)]
            if messages:
                with contextlib.suppress(ray.exceptions.RayError):  # the driver is gone, and Ray ends this process too
                    ray.get(self._line.tell.remote(self.rank, messages))
            for item in due:
                if isinstance(item, threading.Event):
                    item.set()


def work(job: Any, line: Any, every_batch: bool) -> None:
    """Train as one of the group that Ray Train started; the environment says which.

    Raises:
        Exception: whatever ended it, so that Ray Train ends the others. The driver has been told.
    """
    channel = LineChannel(int(os.environ["RANK"]), line, every_batch=every_batch)
    channel.send("here", ray.get_runtime_context().current_actor)
    asked = threading.Event()
    threading.Thread(target=_obey, args=(line, asked), daemon=True).start()
    with _output_to(channel):
        try:
            with channel.failures_told():
                from core.training.job import make_strategy, run_job

                use(channel.ask)
                job = _in_reach(job, channel.ask)
                strategy = make_strategy(job.strategy, job.device)
                strategy.start()
                channel.finish("result", run_job(job, strategy, channel, asked.is_set))
        except CoreError:
            raise
        except Exception:
            time.sleep(ECHO_SECONDS)
            raise
        strategy.stop()


def _in_reach(job: Any, ask: Callable[[str, Any], Any]) -> Any:
    """The job with its places as this worker can reach them."""
    url, options = job.processed
    processed = within_reach(Location(url, options), MANIFEST, ask)
    weights = job.initial_weights
    return attrs.evolve(
        job,
        processed=(processed.url, dict(processed.options)),
        run_folder=within_reach(job.run_folder, "description.json", ask),
        initial_weights=weights and within_reach(weights, "metadata.json", ask),
    )


def _obey(line: Any, asked: threading.Event) -> None:
    order = ""
    while True:
        try:
            order = ray.get(line.order.remote(order))
        except ray.exceptions.RayError:  # the driver is gone, and Ray ends this process too
            return
        if order == "die":
            os._exit(1)
        asked.set()


@contextlib.contextmanager
def _output_to(channel: Channel) -> Iterator[None]:
    """What this process and its libraries write to stdout and stderr goes to the driver, which keeps the log."""
    reader, writer = os.pipe()
    kept = {number: os.dup(number) for number in (1, 2)}

    def pass_on() -> None:
        while data := os.read(reader, LOG_BYTES):
            channel.send("log", data)

    thread = threading.Thread(target=pass_on, daemon=True)
    for number in kept:
        os.dup2(writer, number)
    os.close(writer)
    thread.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
        thread.join(timeout=5)  # a child of this process may hold the pipe open
