"""Prediction by several processes of this machine: what one that is lost had to do is done again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from core.backends.channel import LOG_TAIL_LINES
from core.backends.workers import cause_of_death
from core.errors import CoreError, WorkerFailed
from core.prediction.work import Advance, Outcome, Result, Work

if TYPE_CHECKING:
    from core.data.encode import InputBlock
    from core.prediction.parts import Parts

QUEUED = 2
"""Blocks that a process has: one is worked on, the next is read meanwhile."""
AHEAD = 2
"""Outcomes, a process, that may wait for an earlier one."""
ATTEMPTS = 3
"""Processes that may die while they work on one block."""


def outcomes_of_processes(
    count: int, work: Work, blocks: Sequence[tuple[int, InputBlock]], parts: Parts | None, advance: Advance
) -> Iterator[Outcome]:
    """See `core.prediction.engines.outcomes`."""
    finished: dict[int, Result | CoreError] = {}
    with tempfile.TemporaryDirectory(prefix="core-") as logs:
        group = _Group(count, work, parts, Path(logs), deque(enumerate(blocks)))
        try:
            for position, (number, _) in enumerate(blocks):
                while number not in finished:
                    group.hand_out(before=position + count * (QUEUED + AHEAD))
                    finished.update(group.heard())
                outcome = finished.pop(number)
                if isinstance(outcome, Result):
                    advance(outcome.rows)
                yield number, outcome
        finally:
            for member in group.members:
                member.end()


@attrs.define
class _Member:
    """A process, and the blocks that it has, with their positions among all."""

    process: subprocess.Popen[bytes]
    connection: Connection
    log: Path
    has: deque[tuple[int, tuple[int, InputBlock]]] = attrs.field(factory=deque)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


@attrs.define
class _Group:
    """The processes there are, and the blocks that none of them has."""

    count: int
    work: Work
    parts: Parts | None
    logs: Path
    todo: deque[tuple[int, tuple[int, InputBlock]]]
    members: list[_Member] = attrs.field(factory=list)
    deaths: Counter[int] = attrs.field(factory=Counter)

    def hand_out(self, *, before: int) -> None:
        """Give every process its fill of blocks whose position is below `before`; start processes where some lack."""
        while self.todo and len(self.members) < self.count:
            self.members.append(self._started())
        for member in sorted(self.members, key=lambda member: len(member.has)):
            while len(member.has) < QUEUED and self.todo and self.todo[0][0] < before:
                item = self.todo.popleft()
                member.has.append(item)
                number, block = item[1]
                with contextlib.suppress(OSError):  # it is gone, which is noticed in a moment
                    member.connection.send((number, block.portable()))

    def heard(self) -> dict[int, Result | CoreError]:
        """What came in, once there is something.

        Raises:
            CoreError: no process can do any block.
            WorkerFailed: processes died of a block again and again.
        """
        by_connection = {member.connection: member for member in self.members}
        found: dict[int, Result | CoreError] = {}
        for connection in cast("list[Connection]", wait(list(by_connection))):
            member = by_connection[connection]
            try:
                number, outcome = connection.recv()
            except (EOFError, OSError):
                self._replace(member)
                continue
            if number is None:
                raise outcome
            found[number] = outcome
            member.has.popleft()
        return found

    def _replace(self, member: _Member) -> None:
        """Take back the blocks of a process that is gone; the one that it worked on may have been the reason."""
        cause = cause_of_death(member.process)
        member.end()
        self.members.remove(member)
        if not member.has:
            return
        number = member.has[0][1][0]
        self.deaths[number] += 1
        if self.deaths[number] >= ATTEMPTS:
            tail = member.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            quoted = "".join(f"\n    | {line}" for line in tail) or "\n    | (empty)"
            raise WorkerFailed(
                f"{ATTEMPTS} processes were lost while they predicted one part of the dataset, "
                f"the last of which {cause}; the end of its log:{quoted}",
                path="backend.trainer.num_workers",
                found=self.count,
                hint="Fewer workers, or a smaller --batch-size, need less memory.",
            )
        self.todo = deque(sorted([*member.has, *self.todo], key=lambda item: item[0]))

    def _started(self) -> _Member:
        ours, theirs = Pipe()
        taken = {member.log.name for member in self.members}
        rank = next(rank for rank in range(self.count) if f"worker-{rank}.log" not in taken)
        environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.count)), **os.environ}
        if self.work.device == "cuda":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.count)))
            environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[rank]
        log = self.logs / f"worker-{rank}.log"
        # -P: a folder named `core` where the user stands must not be taken for this package.
        # A session of its own: Ctrl-C reaches this process alone, which ends the others.
        command = [sys.executable, "-P", "-m", "core.prediction.worker", str(theirs.fileno())]
        with open(log, "wb") as file, theirs:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        with contextlib.suppress(OSError):
            ours.send((self.work, self.parts))
        return _Member(process, ours, log)
