"""Places where things are kept: local paths, ``file://`` and any other fsspec URL, with one kind of error."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import attrs

from core.errors import CoreError, StorageError
from core.patience import patiently

_log = logging.getLogger("core")

T = TypeVar("T")

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
_REMOTE_HINTS = {
    errno.ENOENT: "check the URL: the bucket or host, and the path in it",
    errno.EACCES: "check the credentials, and what they are allowed to do there",
}
_EXTRAS = {"s3": "s3", "s3a": "s3"}
"""Extra of this distribution that brings what a protocol needs."""

_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci", "r2"})
"""Protocols without folders: a path is there when something below it is."""

_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
"""How S3 servers refuse to create what is there, or is being created."""

_NO_SECRETS = frozenset({"endpoint_url", "region_name", "config_kwargs"})
"""Options that an error may show, and is clearer for it."""


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
        """The fsspec file system and the path inside it. Listings that it remembers are forgotten: others write too."""
        from fsspec.core import url_to_fs
        from fsspec.utils import get_protocol

        local = self.local_path
        try:
            filesystem, path = url_to_fs(local if local is not None else self.url, **self.options)
        except ImportError as error:
            extra = _EXTRAS.get(get_protocol(self.url))
            hint = f"pip install 'core[{extra}]'" if extra else ""
            raise StorageError(f"cannot use this place: {self._redacted(error)}", path=str(self), hint=hint) from None
        except ValueError as error:  # fsspec's own message says which protocol it does not know
            raise StorageError(f"cannot use this place: {self._redacted(error)}", path=str(self)) from None
        filesystem.invalidate_cache()
        return filesystem, cast(str, path)

    def open(self, mode: str = "rb") -> IO[Any]:
        """An open file. Text modes are UTF-8.

        Raises:
            StorageError: it is missing, or may not be opened.
        """
        action = "read" if "r" in mode else "write"
        if (local := self.local_path) is not None:
            with self._errors(action):
                return open(local, mode, encoding=None if "b" in mode else "utf-8")
        return self._ask(action, lambda filesystem, path: cast("IO[Any]", filesystem.open(path, mode)))

    def read_bytes(self) -> bytes:
        """The whole file."""
        return self._ask("read", lambda filesystem, path: cast(bytes, filesystem.cat_file(path)))

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`."""
        with self._errors("read"):
            filesystem, path = self.filesystem()
            return cast(bytes, filesystem.cat_file(path, start=start, end=stop))

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        return self._ask("look at", lambda filesystem, path: bool(filesystem.exists(path)))

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self._ask("look at", lambda filesystem, path: bool(filesystem.isdir(path)))

    def info(self) -> dict[str, Any]:
        """What the file system knows of it: `size`, `type`, and where it has them `etag`, `version`, `mtime`."""
        return self._ask("look at", lambda filesystem, path: cast("dict[str, Any]", filesystem.info(path)))

    def listdir(self) -> list[str]:
        """Names in this folder, sorted; none where there is no such folder."""

        def names(filesystem: Any, path: str) -> list[str]:
            found = (_posix(entry).rstrip("/") for entry in filesystem.ls(path, detail=False))
            # Consoles of object stores mark a folder with an object of its name, which is listed with what is in it.
            return sorted(entry.rpartition("/")[2] for entry in found if entry != _posix(path).rstrip("/"))

        try:
            return self._ask("list", names)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise

    def makedirs(self) -> None:
        """Make the folder and those above it.

        An object store has no folders, and its buckets are not ours to make: there, it is only looked at.
        """

        def make(filesystem: Any, path: str) -> None:
            if not _is_object_store(filesystem):
                filesystem.makedirs(path, exist_ok=True)
                return
            try:
                filesystem.ls(path, detail=False)
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise

        self._ask("create", make)

    def remove(self) -> None:
        """Remove the file, or the folder with all that is in it; nothing happens where there is none."""

        def remove(filesystem: Any, path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                filesystem.rm(path, recursive=True)

        self._ask("remove", remove)

    def remove_empty(self) -> None:
        """Remove the folder if nothing is in it."""
        if (local := self.local_path) is not None:
            with contextlib.suppress(OSError):
                os.rmdir(local)

    def sizes(self) -> dict[str, int]:
        """Bytes of each file in this folder and below it, by its path from here; none where there is no such folder."""

        def find(filesystem: Any, path: str) -> dict[str, int]:
            found = filesystem.find(path, detail=True)
            start = len(path.rstrip("/")) + 1
            files = {_posix(name)[start:]: info["size"] for name, info in found.items() if info["type"] == "file"}
            return {name: size for name, size in files.items() if name}  # without a folder's own marker

        return self._ask("list", find)

    def write_bytes(self, data: Any) -> None:
        """Write the file in the plain way, for content that something written later vouches for."""
        if self.local_path is None:
            self._ask("write", lambda filesystem, path: filesystem.pipe_file(path, bytes(data)))
            return
        with self._errors("write"), self.open("wb") as file:
            file.write(data)

    def write_new(self, data: bytes) -> bool:
        """As `write_atomic`, unless there is a file already; whether it was written.

        One of several writers is told so, on a local disk and on stores that create on condition: S3, GCS and Azure do.
        `data` must be this writer's alone: a request that was made twice is known by it.
        """
        if (local := self.local_path) is None:
            return self._ask("write", lambda filesystem, path: _created(filesystem, path, data)) or (
                self.read_bytes() == data
            )
        with self._errors("write"):
            try:
                with _renamed(local, _link) as file:
                    file.write(data)
            except FileExistsError:
                return False
            return True

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
        self.write_bytes(buffer.getvalue())

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

        def put(filesystem: Any, target: str) -> None:
            if not _is_object_store(filesystem):
                filesystem.makedirs(self.parent.filesystem()[1], exist_ok=True)
            filesystem.put_file(os.fspath(path), target)

        self._ask("write", put)

    def _ask(self, action: str, request: Callable[[Any, str], T]) -> T:
        """What a file system answers; a remote one that cannot be reached is asked again for a while."""
        with self._errors(action):
            filesystem, path = self.filesystem()
            if self.local_path is not None:
                return request(filesystem, path)
            return patiently(
                lambda: request(filesystem, path),
                lambda error: _log.debug("%s: cannot %s it (%s): trying again", self, action, self._redacted(error)),
            )

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except CoreError:
            raise
        except OSError as error:
            if self.local_path is not None:
                reason = os.strerror(error.errno) if error.errno else self._redacted(error)
                hint = _HINTS.get(error.errno or 0, "")
            else:
                kinds = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
                number = next((number for kind, number in kinds.items() if isinstance(error, kind)), 0)
                reason = os.strerror(number) if number == errno.ENOENT else self._redacted(error)
                hint = _REMOTE_HINTS.get(number, "")
            raise StorageError(f"cannot {action} it: {reason}", path=str(self), hint=hint) from _bare(error)
        except Exception as error:
            if self.local_path is not None:
                raise
            # Clients of object stores raise errors of their own, which may quote what they were given.
            raise StorageError(f"cannot {action} it: {self._redacted(error)}", path=str(self)) from None

    def _redacted(self, error: BaseException) -> str:
        text = _USER_INFO.sub("***@", f"{type(error).__name__}: {error}")
        for secret in _leaves(self.options):
            text = text.replace(secret, "***")
        return text


def _bare(error: OSError) -> OSError | None:
    """The part of a cause that is safe to show in a traceback, where callers tell causes apart."""
    return FileNotFoundError() if isinstance(error, FileNotFoundError) else None


def _created(filesystem: Any, path: str, data: bytes) -> bool:
    """Whether a file that was not there has been written."""
    try:
        filesystem.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if _code(error) in _TAKEN:
            return False
        if error.errno != errno.ENOSYS:
            raise
        # A store that knows no conditions, and says so.
        if filesystem.exists(path):
            return False
        filesystem.pipe_file(path, data)
    return True


def _code(error: OSError) -> str:
    """What an S3 server calls the error."""
    return str(getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", ""))


def _is_object_store(filesystem: Any) -> bool:
    protocol = filesystem.protocol
    return not _OBJECT_STORES.isdisjoint([protocol] if isinstance(protocol, str) else protocol)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _NO_SECRETS:
                yield from _leaves(item)
    elif isinstance(value, str) and len(value) > 3:
        yield value


def _posix(path: str) -> str:
    return path.replace(os.sep, "/")


@contextlib.contextmanager
def _renamed(path: str, give_name: Callable[[str, str], None] = os.replace) -> Iterator[IO[bytes]]:
    """A file under a temporary name, flushed to the disk, which `give_name` then moves to `path`."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        give_name(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


def _link(temporary: str, path: str) -> None:
    """As `os.replace`, but for a name that is taken: that raises FileExistsError."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        os.replace(temporary, path)  # a disk without hard links


def user_cache() -> Location:
    """The folder where this platform keeps what a user's programs can compute again."""
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Location(os.path.join(folder, "core"))
    if os.name == "nt":
        return Location(os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~"), "core", "Cache"))
    if os.uname().sysname == "Darwin":
        return Location(os.path.expanduser("~/Library/Caches/core"))
    return Location(os.path.expanduser("~/.cache/core"))
