"""A split as a Lance dataset on this node's disk: made by the first worker to come, shared, gone with the last.

A lock file stands beside each copy. Who makes it or clears it away holds the lock exclusively, who uses it holds it
shared; the system takes a lock back when its process ends, so what nobody holds was left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa

from core.errors import CoreError, StorageError
from core.loader import EncodedSplit

READ_ROWS = 1 << 16


class Copy:
    """Close it when done.

    Raises:
        StorageError: there is no room for it, or no right to write it.
    """

    def __init__(self, split: EncodedSplit, directory: str | None) -> None:
        folder = Path(directory or tempfile.gettempdir()) / f"core-lance-{os.getuid()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _clear(folder)
            self._path = folder / f"{split.key}.lance"
            self._lock = self._entered(split)
        except OSError as error:
            raise StorageError(
                f"cannot keep a copy of the data: {error}",
                path="backend.loader.directory",
                found=str(folder),
                expected="a folder that can be written, on a disk with room for the data",
            ) from error
        self.dataset = lance.dataset(self._path)

    def close(self) -> None:
        """Let go of it. It is removed if nobody else holds it."""
        if _alone(self._lock):
            shutil.rmtree(self._path, ignore_errors=True)
            _lock_of(self._path).unlink(missing_ok=True)
        os.close(self._lock)

    def _entered(self, split: EncodedSplit) -> int:
        while True:
            lock = os.open(_lock_of(self._path), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if _alone(lock) and _is_there(lock, _lock_of(self._path)) and not self._path.exists():
                    self._make(split)
                fcntl.flock(lock, fcntl.LOCK_SH)  # waits for who makes it
                if _is_there(lock, _lock_of(self._path)) and self._path.exists():
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _make(self, split: EncodedSplit) -> None:
        partial = self._path.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)

        problems: list[CoreError] = []  # of which Lance would make text

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for start in range(0, split.rows, READ_ROWS):
                    yield from split.read(start, start + READ_ROWS).to_batches()
            except CoreError as error:
                problems.append(error)
                raise

        try:
            lance.write_dataset(batches(), partial, schema=split.schema)
        except OSError:
            if problems:
                raise problems[0] from None
            raise
        partial.rename(self._path)


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def _alone(lock: int) -> bool:
    """Whether nobody else holds the lock, which is held exclusively then."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(lock: int, path: Path) -> bool:
    """Whether the path still leads to this open file."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    """Remove copies that nobody holds."""
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR)
            try:
                if _alone(lock):
                    for suffix in (".lance", ".partial"):
                        shutil.rmtree(path.with_suffix(suffix), ignore_errors=True)
                    path.unlink()
            finally:
                os.close(lock)
