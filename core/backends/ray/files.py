"""The driver's disk as a file system of the workers, for clusters whose nodes share none.

A worker asks over the line, and the driver does it. Paths are local paths of the driver: ``driver:///home/me/results``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from core.storage import Location

PROTOCOL = "driver"
CHUNK_BYTES = 16 << 20

Ask = Callable[[str, Any], Any]
"""``ask(kind, content)``: the driver's answer, or its exception raised."""


class DriverFiles(AbstractFileSystem):  # type: ignore[misc]
    """Read and write whole files and ranges of the driver's disk."""

    protocol = PROTOCOL
    cachable = False
    ask: Ask

    def _do(self, method: str, path: str, *arguments: Any) -> Any:
        return type(self).ask("file", (method, self._strip_protocol(path), *arguments))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        found: list[dict[str, Any]] = self._do("ls", path)
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **options: Any) -> Any:
        return self._do("info", path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._do("makedirs", path)

    def _rm(self, path: str) -> None:
        self._do("remove", path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._do("remove", path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        size = self.info(path)["size"]
        stop = size if end is None else min(end, size)
        first = start or 0
        parts = [self._do("read", path, at, min(at + CHUNK_BYTES, stop) - at) for at in range(first, stop, CHUNK_BYTES)]
        return b"".join(parts)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self._write(path, (value[at : at + CHUNK_BYTES] for at in range(0, len(value), CHUNK_BYTES)))

    def put_file(self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **options: Any) -> None:
        with open(lpath, "rb") as file:
            self._write(rpath, iter(lambda: file.read(CHUNK_BYTES), b""))

    def _write(self, path: str, parts: Iterator[bytes]) -> None:
        """Under another name first: what breaks off leaves the old file as it was."""
        unfinished = f"{self._strip_protocol(path)}.unfinished"
        self._do("write", unfinished, b"", "wb")
        for part in parts:
            self._do("write", unfinished, part, "ab")
        self._do("rename", unfinished, self._strip_protocol(path))

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> AbstractBufferedFile:
        return _File(self, path, mode, block_size=CHUNK_BYTES)


class _File(AbstractBufferedFile):  # type: ignore[misc]
    """A file read in ranges; nothing here writes through an open file."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = self.fs.cat_file(self.path, start=start, end=end)
        return content


def serve(method: str, path: str, *arguments: Any) -> Any:
    """The driver's side: do what a worker asked for."""
    return _METHODS[method](path, *arguments)


def _read(path: str, start: int, count: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(count)


def _write(path: str, content: bytes, mode: str) -> None:
    with open(path, mode) as file:
        file.write(content)


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


_METHODS: dict[str, Callable[..., Any]] = {
    "ls": lambda path: LocalFileSystem().ls(path, detail=True),
    "info": lambda path: LocalFileSystem().info(path),
    "makedirs": lambda path: os.makedirs(path, exist_ok=True),
    "read": _read,
    "write": _write,
    "rename": os.replace,
    "remove": _remove,
}


def use(ask: Ask) -> None:
    """Let this process reach the driver's disk."""
    DriverFiles.ask = staticmethod(ask)
    fsspec.register_implementation(PROTOCOL, DriverFiles, clobber=True)


def within_reach(place: Location, witness: str, ask: Ask) -> Location:
    """The same place for this worker: a path of its own where the disk is shared, else one on the driver's.

    Args:
        witness: a file in `place` that the driver wrote and that no earlier run can have left alike.
    """
    local = place.local_path
    if local is None:
        return place
    path = os.path.join(local, witness)
    theirs = ask("file", ("info", path))
    try:
        ours = Path(path).stat()
    except OSError:
        pass
    else:
        if (ours.st_size, ours.st_mtime) == (theirs["size"], theirs["mtime"]):
            return place
    return Location(f"{PROTOCOL}://{local}")
