"""Predictions on their way to a file or a folder, in parts that a job which was stopped finds again."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import attrs

from core.errors import CoreError, Interrupted, StorageError, UserError
from core.prediction.claim import claimed
from core.prediction.output import Target, Write, open_writer
from core.prediction.parts import Parts
from core.prediction.work import Result
from core.run import as_json
from core.storage import Location

log = logging.getLogger("core")

MANIFEST = "_manifest.json"
BEHIND = 2
"""Parts that may wait to be written while the next are worked on."""


@attrs.define(kw_only=True)
class Job:
    """A job that holds its place.

    Attributes:
        parts: where they are kept.
        done: records of those that were there before, by number.
    """

    parts: Parts
    done: Mapping[int, Mapping[str, Any]]
    _append: Write | None
    _rows: dict[int, int] = attrs.field(factory=dict)

    def found(self, number: int) -> Result:
        """A part that was done before."""
        return self.parts.result(number, self.done[number], table=self._append is not None)

    def take(self, number: int, result: Result, *, kept: bool) -> None:
        """The next part in row order, which has been kept already or is now."""
        if not kept:
            self.parts.write(number, result)
        if self._append is not None and result.table is not None:
            self._append(result.table)
        self._rows[number] = result.rows

    def manifest(self, digest: str) -> bytes:
        """What says that a folder is complete."""
        parts = [
            {"name": self.parts.name(number) + self.parts.suffix, "rows": rows}
            for number, rows in self._rows.items()
            if rows
        ]
        return as_json({"format": 1, "job": digest, "rows": sum(self._rows.values()), "parts": parts}).encode()


def finished_rows(target: Target, digest: str) -> int | None:
    """Rows of a folder that this job finished before; None where it did not."""
    if target.suffix:
        return None
    try:
        manifest = json.loads((target.place / MANIFEST).read_bytes())
    except (StorageError, ValueError):
        return None
    return int(manifest["rows"]) if manifest.get("job") == digest else None


@contextlib.contextmanager
def opened(target: Target, digest: str, count: int, about: Mapping[str, Any]) -> Iterator[Job]:
    """Hold a target, find what was done of this job before, and finish it when the block ends without an exception.

    Args:
        about: what to say of the job in its folder, for people.

    Raises:
        UserError: another process writes there, or a folder holds something else.
    """
    place = target.place.absolute()
    base = place.parent / f".{place.name}.parts" if target.suffix else place / "_job"
    records = base / digest
    _refuse_others(target, place, digest)
    parts = Parts(
        folder=records if target.suffix else place,
        records=records,
        suffix=".arrow" if target.suffix else ".parquet",
        count=count,
    )
    base.makedirs()
    try:
        with claimed(base, str(target)) as still_ours:
            with _told_what_stays(parts, base):
                _clear(target, base, digest)
                records.makedirs()
                (records / "about.json").write_bytes(as_json(about).encode())
                done = parts.done()
                if done:
                    log.info("continuing: %d of %d parts were done", len(done), count)
                with _assembled(target, place, base) as append:
                    job = Job(parts=parts, done=done, append=append)
                    yield job
                    still_ours()
                if not target.suffix:
                    (place / MANIFEST).write_atomic(job.manifest(digest))
            base.remove()
    finally:
        base.remove_empty()


def _clear(target: Target, base: Location, digest: str) -> None:
    """Remove what another job has left, and what says that an earlier one is complete."""
    others = [name for name in _left_in(base) if name != digest]
    for name in others:
        (base / name).remove()
    if any(not name.startswith(".") for name in others):
        log.info("%s: unfinished parts of another job were there; starting over", target)
    if not target.suffix:
        (target.place / MANIFEST).remove()


@contextlib.contextmanager
def behind(job: Job) -> Iterator[Callable[..., None]]:
    """`job.take`, done by a thread in the order of the calls; at the end of the block all of them have been."""
    pending: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="core-write-behind") as executor:

        def take(number: int, result: Result, *, kept: bool) -> None:
            if len(pending) >= BEHIND:
                pending.popleft().result()
            pending.append(executor.submit(job.take, number, result, kept=kept))

        try:
            yield take
        except BaseException:
            for future in pending:  # what is done is kept, if it can be
                with contextlib.suppress(CoreError):
                    future.result()
            raise
        for future in pending:
            future.result()


@contextlib.contextmanager
def _told_what_stays(parts: Parts, base: Location) -> Iterator[None]:
    """Say where a failure leaves the job; nothing of one that had done nothing."""
    try:
        yield
    except CoreError as error:
        with contextlib.suppress(StorageError):  # the reason may be that nothing can be asked
            if not (done := len(parts.done())):
                base.remove()
            elif not isinstance(error, Interrupted):
                log.info("%d of %d parts are done and stay: the same command continues", done, parts.count)
        raise


@contextlib.contextmanager
def _assembled(target: Target, place: Location, base: Location) -> Iterator[Write | None]:
    """A file that is made of tables as they come, and gets its name when the block ends without an exception.

    It is made on a local disk: in `base`, or for a place elsewhere in the folder for temporary files.
    """
    if not target.suffix:
        yield None
        return
    whole = place if place.local_path is None else base / place.name
    with whole.replacing_file() as path, open_writer(path) as append:
        yield append
    if whole is not place:
        os.replace(whole, place)


def _refuse_others(target: Target, place: Location, digest: str) -> None:
    """Raise where the target is of the other kind, or a folder that holds anything but what this job left there."""
    if bool(target.suffix) == place.is_dir() and place.exists():
        raise UserError(
            f"is a {'folder' if target.suffix else 'file'}",
            path=str(target),
            hint="Name another --output: a suffix makes it a file, a slash at its end a folder.",
        )
    if target.suffix:
        return
    names = place.listdir()
    unfinished = _left_in(place / "_job") if "_job" in names else []
    if digest in unfinished or finished_rows(target, digest) is not None:
        return
    if others := [name for name in names if name != "_job" or unfinished]:
        raise UserError(
            "the folder is not empty" + ("" if "_job" not in names and MANIFEST not in names else _OTHER),
            path=str(target),
            found=others[0] if len(others) == 1 else f"{others[0]} and {len(others) - 1} more",
            expected="a new folder, or one that the same command left unfinished",
            hint="Name another --output, or remove the folder.",
        )


_OTHER = ": it holds the predictions of another job"


def _left_in(base: Location) -> list[str]:
    """What a job has left: all but claims."""
    return [name for name in base.listdir() if not name.startswith("claim-")]
