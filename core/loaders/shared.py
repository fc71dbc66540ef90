"""One copy of a split's rows for all workers of a node: a file that they map, gone with the last of them.

The file is its own lock. Who holds it exclusively is alone with it: the worker that fills it, or one that clears it
away. Who uses it holds it shared. Locks end with their process, however it ends, so what a killed worker leaves
behind is known by nobody holding it, and the next run removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import mmap
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from core.loader import EncodedSplit
from core.loaders.rows import Layout, Rows

log = logging.getLogger("core")

WORTH_SHARING_BYTES = 1 << 20
"""Smaller splits are not worth a file."""

_HEADER = mmap.PAGESIZE
_COMPLETE = b"complete"
_FOLDERS = ("/dev/shm", tempfile.gettempdir())


class SharedRows:
    """`rows` of a split, in a file mapped by every worker of this user on this node. Close it when done.

    Raises:
        OSError: there is no place for it.
    """

    def __init__(self, split: EncodedSplit) -> None:
        layout = Layout.of(split.schema)
        shape = (split.rows, layout.words)
        size = _HEADER + 4 * split.rows * layout.words
        folder = _folder_with_room(size)
        _clear(folder)
        self._path = folder / f"{split.key}.rows"
        self._file = _held(self._path, size, functools.partial(_fill, size=size, layout=layout, split=split))
        try:
            # What a worker writes into it, by mistake, the others do not see.
            mapped = mmap.mmap(self._file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError:
            os.close(self._file)
            raise
        matrix = np.frombuffer(mapped, dtype=np.int32, offset=_HEADER).reshape(shape)
        self.rows = Rows(layout, matrix)

    def close(self) -> None:
        """Let go of the file; it is removed if nobody else has it. Batches that were handed out stay as they are."""
        if _alone(self._file):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def _held(path: Path, size: int, fill: Callable[[int], None]) -> int:
    """The complete file, which this process uses now; the first to come fills it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if _alone(file) and _is_there(file, path) and not _is_complete(file, size):
                fill(file)
            fcntl.flock(file, fcntl.LOCK_SH)  # waits for who fills it
            if _is_there(file, path) and _is_complete(file, size):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _alone(file: int) -> bool:
    """Whether nobody else holds the file, which is held exclusively then."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(file: int, path: Path) -> bool:
    """Whether the path still leads to this open file."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _is_complete(file: int, size: int) -> bool:
    return os.fstat(file).st_size == size and os.pread(file, len(_COMPLETE), 0) == _COMPLETE


def _fill(file: int, size: int, layout: Layout, split: EncodedSplit) -> None:
    os.ftruncate(file, 0)
    os.posix_fallocate(file, 0, size)  # writing into a map of a full disk would kill the process
    with mmap.mmap(file, size) as mapped:
        matrix = np.frombuffer(mapped, dtype=np.int32, offset=_HEADER).reshape(split.rows, layout.words)
        Rows(layout, matrix).load(split)
        del matrix
    os.pwrite(file, _COMPLETE, 0)


def _folder_with_room(size: int) -> Path:
    for place in _FOLDERS:
        with contextlib.suppress(OSError):
            found = os.statvfs(place)
            if found.f_bavail * found.f_frsize > size:
                return _own_folder(Path(place))
    raise OSError("there is no room for a copy that the workers of this machine could share")


def _own_folder(place: Path) -> Path:
    """A folder for this user's eyes only."""
    folder = place / f"core-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise PermissionError(f"{folder} is not a private folder of this user")
    return folder


def _clear(folder: Path) -> None:
    """Remove what nobody holds."""
    for path in folder.glob("*.rows"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _alone(file):
                    path.unlink()
            finally:
                os.close(file)


@contextlib.contextmanager
def held_rows(split: EncodedSplit) -> Iterator[Rows]:
    """All rows of a split, shared with the other workers of this node, if there are any, where that is possible."""
    layout = Layout.of(split.schema)
    alone = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == 1
    if alone or 4 * split.rows * layout.words < WORTH_SHARING_BYTES:
        yield Rows.of(split)
        return
    try:
        shared = SharedRows(split)
    except OSError as error:
        log.info("loader: each worker holds a copy of the data of its own: %s", error)
        yield Rows.of(split)
        return
    try:
        yield shared.rows
    finally:
        shared.close()
