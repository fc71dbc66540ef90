"""Places where things are kept: local paths, ``file://`` and any other fsspec URL, with one kind of error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import attrs

from core.errors import CoreError, StorageError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]+(://|::)")
_USER_INFO = re.compile(r"(?<=://)[^/@]+@")

_HINTS = {
    errno.ENOENT: "check the path; relative ones start from the working directory",
    errno.EACCES: "check the permissions, or choose another place",
    errno.EPERM: "check the permissions, or choose another place",
    errno.EROFS: "it is read-only: choose another place",
    errno.ENOSPC: "the disk is full: free some space, or choose another place",
    errno.EDQUOT: "the disk quota is used up: free some space, or choose another place",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def is_url(place: str) -> bool:
    """Whether `place` is written as a URL rather than as a local path."""
    return bool(_URL.match(place))


@attrs.frozen(repr=False)
class Location:
    """A file or folder, wherever it is.

    Attributes:
        url: a local path or any fsspec URL.
        options: fsspec options of its protocol, credentials among them; never shown.
    """

    url: str = attrs.field(converter=os.fspath)
    options: Mapping[str, Any] = attrs.field(factory=dict, eq=False)

    @classmethod
    def of(cls, url: str | os.PathLike[str], credentials: Mapping[str, Any] | None = None) -> Location:
        """The location `url`, with its protocol's part of `credentials` (fsspec options by protocol)."""
        from fsspec.utils import get_protocol

        text = os.fspath(url)
        return cls(text, dict((credentials or {}).get(get_protocol(text), {})) if is_url(text) else {})

    def __str__(self) -> str:
        return _USER_INFO.sub("***@", self.url)

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __truediv__(self, name: str) -> Location:
        return self.join(name)

    def __fspath__(self) -> str:
        if (local := self.local_path) is None:
            raise StorageError("this must be a place on a local disk", path=str(self))
        return local

    @property
    def local_path(self) -> str | None:
        """The path on this machine's disk, or None where it is elsewhere."""
        if not is_url(self.url):
            return os.path.expanduser(self.url)
        if self.url.startswith(("file://", "local://")):
            from fsspec.implementations.local import LocalFileSystem

            return cast(str, LocalFileSystem._strip_protocol(self.url))
        return None

    def absolute(self) -> Location:
        """The same place, whatever the working directory is."""
        return self if is_url(self.url) else attrs.evolve(self, url=os.path.abspath(os.path.expanduser(self.url)))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return re.split(r"[/\\]" if os.sep == "\\" else "/", self.url.rstrip("/"))[-1]

    @property
    def parent(self) -> Location:
        """The folder it lies in."""
        if not is_url(self.url):
            return attrs.evolve(self, url=os.path.dirname(self.url) or ".")
        protocol, _, path = self.url.rstrip("/").partition("://")
        return attrs.evolve(self, url=f"{protocol}://{path.rpartition('/')[0]}")

    def join(self, *names: str) -> Location:
        """A place below this one."""
        if not is_url(self.url):
            return attrs.evolve(self, url=os.path.join(self.url, *names))
        return attrs.evolve(self, url="/".join([self.url.rstrip("/"), *names]))

    def filesystem(self) -> tuple[Any, str]:
        """The fsspec file system and the path inside it."""
        from fsspec.core import url_to_fs

        local = self.local_path
        try:
            return cast("tuple[Any, str]", url_to_fs(local if local is not None else self.url, **self.options))
        except (ImportError, ValueError) as error:
            # fsspec's own message says what to install, or which protocol it does not know.
            raise StorageError(f"cannot use this place: {self._redacted(error)}", path=str(self)) from None

    def open(self, mode: str = "rb") -> IO[Any]:
        """An open file. Text modes are UTF-8.

        Raises:
            StorageError: it is missing, or may not be opened.
        """
        with self._errors("read" if "r" in mode else "write"):
            if (local := self.local_path) is not None:
                return open(local, mode, encoding=None if "b" in mode else "utf-8")
            filesystem, path = self.filesystem()
            return cast("IO[Any]", filesystem.open(path, mode))

    def read_bytes(self) -> bytes:
        """The whole file."""
        with self._errors("read"), self.open("rb") as file:
            return cast(bytes, file.read())

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        with self._errors("look at"):
            filesystem, path = self.filesystem()
            return bool(filesystem.exists(path))

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        with self._errors("look at"):
            filesystem, path = self.filesystem()
            return bool(filesystem.isdir(path))

    def info(self) -> dict[str, Any]:
        """What the file system knows of it: `size`, `type`, and where it has them `etag`, `version`, `mtime`."""
        with self._errors("look at"):
            filesystem, path = self.filesystem()
            return cast("dict[str, Any]", filesystem.info(path))

    def listdir(self) -> list[str]:
        """Names in this folder, sorted; none where there is no such folder."""
        with self._errors("list"):
            filesystem, path = self.filesystem()
            filesystem.invalidate_cache()
            try:
                entries = filesystem.ls(path, detail=False)
            except FileNotFoundError:
                return []
            return sorted(entry.rstrip("/").rpartition("/")[2] for entry in map(_posix, entries))

    def makedirs(self) -> None:
        """Make the folder and those above it."""
        with self._errors("create"):
            filesystem, path = self.filesystem()
            filesystem.makedirs(path, exist_ok=True)

    def remove(self) -> None:
        """Remove the file, or the folder with all that is in it; nothing happens where there is none."""
        with self._errors("remove"), contextlib.suppress(FileNotFoundError):
            filesystem, path = self.filesystem()
            filesystem.rm(path, recursive=True)

    def write_bytes(self, data: Any) -> None:
        """Write the file in the plain way, for content that something written later vouches for."""
        with self._errors("write"):
            if self.local_path is None:
                filesystem, path = self.filesystem()
                filesystem.pipe_file(path, bytes(data))
            else:
                with self.open("wb") as file:
                    file.write(data)

    def write_atomic(self, data: bytes) -> None:
        """Replace the file as a whole: a reader, or a crash, sees the old content or the new, nothing between."""
        with self.writing() as file:
            file.write(data)

    @contextlib.contextmanager
    def writing(self) -> Iterator[IO[bytes]]:
        """A file that appears under its name only when the block ends without an exception.

        Locally it is written under a temporary name, flushed to the disk and renamed; elsewhere it is one upload,
        which the store makes visible at its end.
        """
        if (local := self.local_path) is not None:
            with self._errors("write"), _renamed(local) as file:
                yield file
            return
        buffer = io.BytesIO()
        yield buffer
        with self._errors("write"):
            filesystem, path = self.filesystem()
            filesystem.pipe_file(path, buffer.getvalue())

    @contextlib.contextmanager
    def replacing(self, last: str) -> Iterator[Path]:
        """A local folder to fill, whose files become this folder's when the block ends without an exception.

        Locally it takes the place of the old folder as a whole. Elsewhere its files are uploaded, `last` removed first
        and uploaded last: a folder that lacks it is not complete.
        """
        local = self.local_path
        if local is None:
            with tempfile.TemporaryDirectory(prefix="core-") as folder:
                yield Path(folder)
                self._upload(Path(folder), last)
            return
        target = Path(local)
        temporary, replaced = (target.with_name(f".{target.name}-{end}") for end in (uuid.uuid4().hex[:8], "old"))
        with self._errors("write"):
            temporary.mkdir(parents=True)
            try:
                yield temporary
                shutil.rmtree(replaced, ignore_errors=True)
                if target.exists():
                    os.replace(target, replaced)
                os.replace(temporary, target)
            finally:  # a full disk should not be fuller for the attempt
                shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(replaced, ignore_errors=True)

    def _upload(self, folder: Path, last: str) -> None:
        self.join(last).remove()
        for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
            self.join(path.name).put(path)

    @contextlib.contextmanager
    def replacing_file(self) -> Iterator[Path]:
        """A local path to write, whose file becomes this one when the block ends without an exception."""
        suffix = f"-{self.name}"  # which may say in what format to write
        if (local := self.local_path) is None:
            with tempfile.TemporaryDirectory(prefix="core-") as folder:
                yield Path(folder, suffix)
                self.put(Path(folder, suffix))
            return
        target = Path(local)
        temporary = target.with_name(f".{uuid.uuid4().hex[:8]}{suffix}")
        with self._errors("write"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                yield temporary
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)

    def put(self, path: Path) -> None:
        """Make this a copy of a local file."""
        with self._errors("write"):
            filesystem, target = self.filesystem()
            filesystem.makedirs(self.parent.filesystem()[1], exist_ok=True)
            filesystem.put_file(os.fspath(path), target)

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            number = error.errno or (errno.ENOENT if isinstance(error, FileNotFoundError) else None)
            reason = os.strerror(number) if number else self._redacted(error)
            hint = _HINTS.get(number or 0, "")
            raise StorageError(f"cannot {action} it: {reason}", path=str(self), hint=hint) from None
        except CoreError:
            raise
        except Exception as error:
            if self.local_path is not None:
                raise
            # Clients of object stores raise errors of their own, which may quote what they were given.
            raise StorageError(f"cannot {action} it: {self._redacted(error)}", path=str(self)) from None

    def _redacted(self, error: Exception) -> str:
        text = _USER_INFO.sub("***@", f"{type(error).__name__}: {error}")
        for secret in _leaves(self.options):
            text = text.replace(secret, "***")
        return text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, str) and len(value) > 3:
        yield value


def _posix(path: str) -> str:
    return path.replace(os.sep, "/")


@contextlib.contextmanager
def _renamed(path: str) -> Iterator[IO[bytes]]:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def user_cache() -> Location:
    """The folder where this platform keeps what a user's programs can compute again."""
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Location(os.path.join(folder, "core"))
    if os.name == "nt":
        return Location(os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~"), "core", "Cache"))
    if os.uname().sysname == "Darwin":
        return Location(os.path.expanduser("~/Library/Caches/core"))
    return Location(os.path.expanduser("~/.cache/core"))
