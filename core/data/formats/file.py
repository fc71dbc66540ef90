"""A data file's bytes: from the disk or elsewhere, compressed or not."""

from __future__ import annotations

import errno
import hashlib
import io
import mmap
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pyarrow as pa

from core.data.memory import in_megabytes, room, too_large
from core.errors import DataError
from core.storage import Location

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zip": "zip"}

_VERSION_KEYS = ("ETag", "etag", "VersionId", "version_id", "generation", "md5Hash", "content_md5", "checksum")
"""Where file systems keep what changes with a file's content."""
_CHUNK_BYTES = 1 << 20


@attrs.frozen
class File:
    """One file of a dataset.

    Attributes:
        location: where it is.
        suffix: the suffix that says its format, in lower case, compression left out.
        compression: `gzip`, `bz2`, `zstd`, `zip` or None.
    """

    location: Location
    suffix: str
    compression: str | None = None

    @classmethod
    def at(cls, location: Location) -> File:
        """The file there; its name says what it is."""
        stem, suffix = os.path.splitext(location.name.lower())
        compression = COMPRESSIONS.get(suffix)
        if compression == "zip" and not os.path.splitext(stem)[1]:
            return cls(location, os.path.splitext(_member(location).lower())[1], compression)
        if compression:
            suffix = os.path.splitext(stem)[1]
        return cls(location, suffix, compression)

    def __str__(self) -> str:
        return str(self.location)

    def buffer(self) -> pa.Buffer:
        """All bytes, decompressed; a file on this machine's disk is mapped, not read.

        Raises:
            DataError: it is empty, or its compressed data is damaged.
            StorageError: it cannot be read.
        """
        return self._content(None)

    def head(self, size: int) -> pa.Buffer:
        """The first `size` bytes, or fewer where there are no more; the same errors."""
        if self.compression:
            return self._content(size)
        if not (stored := self.size()):
            raise DataError("the file is empty", path=str(self))
        return self.span(0, min(size, stored))

    def _content(self, size: int | None) -> pa.Buffer:
        buffer = self._stored()
        if self.compression:
            try:
                buffer = _decompressed(buffer, self.compression, size)
            except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise DataError(
                    f"damaged {self.compression} data: {error}",
                    path=str(self),
                    hint="it may have been cut off while it was copied: copy it again",
                ) from None
        if not buffer.size:
            raise DataError("the file is empty", path=str(self))
        return buffer if size is None else buffer.slice(0, min(size, buffer.size))

    def size(self) -> int:
        """Bytes as they are stored.

        Raises:
            StorageError: it cannot be looked at.
        """
        return int(self.location.info()["size"])

    def span(self, start: int, stop: int) -> pa.Buffer:
        """The stored bytes from `start` to `stop`; of a file on this machine's disk they are mapped, not read."""
        if self.location.local_path is None:
            return pa.py_buffer(self.location.read_range(start, stop))
        return self._mapped(start, stop)

    def chunks(self) -> Iterator[bytes]:
        """The stored bytes, a few megabytes at a time, each but the last up to the end of a line."""
        rest = b""
        with self.location.open() as file:
            while data := file.read(_CHUNK_BYTES):
                end = data.rfind(b"\n") + 1
                if end:
                    yield rest + data[:end]
                    rest = data[end:]
                else:
                    rest += data
        if rest:
            yield rest

    def lines_before(self, offset: int) -> int:
        """How many lines end before an offset, which is not between the two characters of a line's end."""
        lines = 0
        for start in range(0, offset, _CHUNK_BYTES):
            # One byte more at the front, for a line's end that lies across chunks.
            data = self.span(max(start - 1, 0), min(start + _CHUNK_BYTES, offset)).to_pybytes()
            lines += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") - (start and data[:1] in b"\r\n")
        return lines

    @contextmanager
    def opened(self) -> Iterator[pa.NativeFile]:
        """The content for pyarrow to read here and there; what is asked for is read, and no more.

        Raises:
            DataError, StorageError: as `buffer`.
        """
        if self.compression:
            yield pa.BufferReader(self.buffer())
        elif (path := self.location.local_path) is not None:
            self._refuse_empty()
            with pa.OSFile(path) as file:
                yield file
        else:
            with self.location.open() as remote:
                yield pa.PythonFile(remote, mode="r")

    def fingerprint(self) -> str:
        """A digest of the content: of the bytes, or of what an object store says of its version."""
        digest = hashlib.blake2b(f"{self.suffix}:{self.compression}:".encode(), digest_size=32)
        if self.location.local_path is None:
            info = self.location.info()
            if version := [f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key)]:
                digest.update(";".join([f"size={info.get('size')}", *version]).encode())
                return digest.hexdigest()
        with self.location.open() as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    def _stored(self) -> pa.Buffer:
        if self.location.local_path is None:
            self.require_room()
            return pa.py_buffer(self.location.read_bytes())
        if self.compression:
            self.require_room()
        return self._mapped(0, self._refuse_empty())

    def _mapped(self, start: int, stop: int) -> pa.Buffer:
        """A range of a file on this machine's disk, and no more of it: address space may be limited too."""
        if start == stop:
            return pa.py_buffer(b"")
        before = start % mmap.ALLOCATIONGRANULARITY
        with self.location.open() as file:
            try:
                mapped = mmap.mmap(file.fileno(), stop - start + before, access=mmap.ACCESS_READ, offset=start - before)
            except OSError as error:
                raise self.damaged(error, "mapped") from None
        return pa.py_buffer(mapped).slice(before)

    def _refuse_empty(self) -> int:
        """The size of a file on this machine's disk."""
        with self.location.open() as file:  # for the errors: pyarrow's are less clear
            if not (size := os.fstat(file.fileno()).st_size):
                raise DataError("the file is empty", path=str(self))
        return size

    def require_room(self) -> None:
        """Raise a DataError where memory cannot hold even the stored bytes, which are less than what they hold."""
        size, found = self.size(), room()
        if found is not None and size > found.bytes:
            raise too_large(str(self), f"the file has {in_megabytes(size)}", found, divisible=False)

    def damaged(self, error: Exception, what: str) -> DataError:
        """The error for content that is not what its suffix says, or that there is no memory for."""
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return too_large(str(self), f"the file has {in_megabytes(self.size())}", room())
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DataError(f"not a readable {what} file: {text}", path=str(self))


def _decompressed(buffer: pa.Buffer, compression: str, size: int | None) -> pa.Buffer:
    if compression == "zip":
        with zipfile.ZipFile(io.BytesIO(memoryview(buffer))) as archive, archive.open(_data_member(archive)) as member:
            return pa.py_buffer(member.read(-1 if size is None else size))
    stream = pa.CompressedInputStream(pa.BufferReader(buffer), compression)
    return pa.py_buffer(stream.read(size))


def _member(location: Location) -> str:
    with location.open() as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _data_member(archive)
        except zipfile.BadZipFile as error:
            raise DataError(f"damaged zip data: {error}", path=str(location)) from None


def _data_member(archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith(("__MACOSX", "."))]
    if len(names) != 1:
        raise DataError(
            "a zip archive needs exactly one data file",
            path=getattr(archive.fp, "name", "") or "",
            found=names,
            hint="unpack it and give the folder, or a list of files",
        )
    return names[0]
