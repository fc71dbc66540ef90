"""One writer at a time: a claim that is created on condition, kept alive, and taken over from a process that died.

A claim is a file ``claim-<n>`` and the one with the highest number counts. To take over is to create the next number,
which one of several does; nothing is removed for it, so that no two of them can believe it theirs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.errors import CoreError, StorageError, UserError
from core.storage import Location

log = logging.getLogger("core")

BEAT_SECONDS = 5.0
PATIENCE_SECONDS = 20.0
"""How long a claim of another machine must not have moved to be of a process that died."""
SETTLED_SECONDS = 0.5


@contextlib.contextmanager
def claimed(folder: Location, what: str) -> Iterator[Callable[[], None]]:
    """Be the one that writes to `folder`. The function raises a `UserError` once another has taken over.

    Args:
        what: what is written, for messages.

    Raises:
        UserError: another process is writing there.
    """
    number = _take(folder, what)
    claim, content = folder / _name(number), _mine()
    lost, done = threading.Event(), threading.Event()

    def beat() -> None:
        while not done.wait(BEAT_SECONDS):
            with contextlib.suppress(CoreError):  # of a store that is out of reach for a while
                if _latest(folder) != number:
                    lost.set()
                    return
                claim.write_atomic(_text({**content, "time": time.time()}))

    def check() -> None:
        if lost.is_set() or _latest(folder) != number:
            raise UserError(f"another process has taken over writing {what}")

    thread = threading.Thread(target=beat, name="core-claim", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(CoreError):
            claim.remove()


def _take(folder: Location, what: str) -> int:
    while True:
        number = _latest(folder)
        if number is not None and (holder := _holder(folder, number)) is not None:
            raise UserError(
                "another process is writing there",
                path=what,
                found=f"process {holder['pid']} of {holder['host']}",
                hint="Wait until it is done, or name another --output.",
            )
        number = 0 if number is None else number + 1
        content = _text({**_mine(), "token": uuid.uuid4().hex})
        if not (folder / _name(number)).write_new(content):
            continue
        if folder.local_path is None:  # where a store lets several write, the last of them has it
            time.sleep(SETTLED_SECONDS)
            if (folder / _name(number)).read_bytes() != content:
                continue
        for earlier in range(number):
            (folder / _name(earlier)).remove()
        return number


def _holder(folder: Location, number: int) -> dict[str, Any] | None:
    """Who has the claim, unless that process is no more."""
    before = _content(folder, number)
    if before is None:
        return None
    if before["machine"] == _machine():
        return before if _started(before["pid"]) == before["started"] else None
    log.info("waiting up to %.0f s to see whether %s still writes there", PATIENCE_SECONDS, before["host"])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(1)
        if (now := _content(folder, number)) != before:
            return now
    return None


def _content(folder: Location, number: int) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads((folder / _name(number)).read_bytes())
    except (StorageError, ValueError):  # given back, or cut off when its disk was full
        return None
    return content


def _latest(folder: Location) -> int | None:
    names = (name for name in folder.listdir() if name.startswith("claim-") and name[6:].isdecimal())
    return max((int(name[6:]) for name in names), default=None)


def _name(number: int) -> str:
    return f"claim-{number}"


def _mine() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "started": _started(pid)}


def _machine() -> str:
    """What tells apart where process numbers mean the same."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """When a process was started, in a way that tells it from a later one of its number; None where it is no more."""
    if not os.path.exists("/proc/self/stat"):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()
