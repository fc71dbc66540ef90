"""Groups of worker processes for a conformance kit, started in a fraction of a second each.

One launcher process imports torch and the strategy once and forks every worker of every group, so that a worker is a
fresh process with nothing left to import. The launcher itself starts no thread and touches no device.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from core.backends.group import free_port, variables

POLL_SECONDS = 0.01
LOG_TAIL_LINES = 30


@attrs.frozen(kw_only=True)
class Ending:
    """How a worker ended: its exit status (negative for a signal), seconds after the start, and what it printed."""

    status: int
    seconds: float
    log: str


class Launcher:
    """Starts groups of workers. Close it, or use it as a context.

    Args:
        module: imported before the first group: that of the strategy.
    """

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "core.testing.workers", module],
            env={"OMP_NUM_THREADS": "1", **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.communicate()

    def launch(
        self,
        work: Callable[[], Any],
        count: int,
        folder: Path,
        *,
        limit_s: float,
        grace_s: float = 3.0,
        teardown: bool = False,
    ) -> list[Ending]:
        """Call `work` in `count` processes that have the variables of a group; what it returns is left in `folder`.

        After `limit_s` seconds, or `grace_s` after the first failure, whoever still runs prints where it is and is
        killed. With `teardown` the interpreter of a worker ends as that of a program does, which takes most of a
        second; without, the process is gone when `work` is done. `work` is pickled.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "work").write_bytes(pickle.dumps(work))
        request = {"folder": str(folder), "count": count, "limit_s": limit_s, "grace_s": grace_s, "teardown": teardown}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the launcher of workers is gone; its error is above"
        return [
            Ending(status=status, seconds=seconds, log=(folder / f"log-{rank}").read_text(errors="replace"))
            for rank, (status, seconds) in enumerate(json.loads(answer))
        ]

    def results(self, work: Callable[[], Any], count: int, folder: Path, *, limit_s: float) -> list[Any]:
        """What `work` returns in each of `count` processes.

        Raises:
            AssertionError: a worker failed, or did not end in `limit_s` seconds; the end of its log is quoted.
        """
        endings = self.launch(work, count, folder, limit_s=limit_s)
        failed = [rank for rank, ending in enumerate(endings) if ending.status]
        if failed:
            # A worker that was killed because another failed has the less to say.
            rank = min(failed, key=lambda rank: (endings[rank].status < 0, endings[rank].seconds))
            lines = "\n".join(f"    | {line}" for line in endings[rank].log.splitlines()[-LOG_TAIL_LINES:])
            raise AssertionError(f"worker {rank} of {count} {_told(endings[rank])}; the end of its log:\n{lines}")
        return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(count)]


def _told(ending: Ending) -> str:
    if ending.status == -signal.SIGABRT:
        return f"did not end in {ending.seconds:.0f} s"
    return f"was killed by signal {-ending.status}" if ending.status < 0 else "failed"


def main() -> int:
    """The launcher: a line of JSON in, a line of JSON out for each group. Returns in every worker too."""
    from core.testing.training import warm_up

    warm_up()
    importlib.import_module(sys.argv[1])
    gc.freeze()  # a worker's collector would copy all of it
    for line in sys.stdin:
        request = json.loads(line)
        folder, count = Path(request["folder"]), request["count"]
        port = free_port()
        started = time.monotonic()
        workers = []
        for rank in range(count):
            if (pid := os.fork()) == 0:
                return _work(folder, rank, count, port, teardown=request["teardown"])
            workers.append(pid)
        endings = _wait(workers, started, request["limit_s"], request["grace_s"])
        print(json.dumps(endings), flush=True)
    return 0


def _work(folder: Path, rank: int, count: int, port: int, *, teardown: bool) -> int:
    log = os.open(folder / f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    faulthandler.enable()
    os.environ |= variables(rank, count, port)
    try:
        result = pickle.loads((folder / "work").read_bytes())()
        (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # leaving the group in order may wait for a worker that is gone
    if not teardown:
        sys.stderr.flush()
        os._exit(0)
    return 0


def _wait(workers: list[int], started: float, limit_s: float, grace_s: float) -> list[tuple[int, float]]:
    endings: dict[int, tuple[int, float]] = {}
    deadline = started + limit_s
    while len(endings) < len(workers):
        for pid in workers:
            if pid in endings:
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            now = time.monotonic()
            if ended:
                code = os.waitstatus_to_exitcode(status)
                endings[pid] = code, now - started
                if code:
                    deadline = min(deadline, now + grace_s)
            elif now > deadline:
                _kill(pid)
                endings[pid] = -signal.SIGABRT, now - started
        time.sleep(POLL_SECONDS)
    return [endings[pid] for pid in workers]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGABRT)  # by which faulthandler prints every thread's stack
    time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
