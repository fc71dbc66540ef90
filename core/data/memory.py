"""How much memory this process may still take, and the error where a dataset needs more.

A process that goes beyond its cgroup's limit, or the machine's memory, is killed without a word, so an engine that
holds a whole dataset has to ask before it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import attrs

from core.errors import DataError
from core.registry import registry

_CGROUPS = Path("/sys/fs/cgroup")
_V2 = ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
"""Files of a cgroup's limit and use, and the parts of the use that the kernel takes back where memory is short."""

MEGABYTE = 10**6


@attrs.frozen
class Room:
    """Memory that may still be taken.

    Attributes:
        bytes: how much; never less than there is.
        what: what sets it.
    """

    bytes: int
    what: str


def room() -> Room | None:
    """The least of what this process's limits leave; None where the platform does not tell. Linux only."""
    found = [room for room in (_of_machine(), _under_cgroups(), _in_address_space()) if room is not None]
    return min(found, key=lambda room: room.bytes, default=None)


def too_large(where: str, found: str, room: Room | None = None, *, divisible: bool = True) -> DataError:
    """The error for a dataset that cannot be held as a whole.

    Args:
        where: the dataset, or the file of it.
        found: its size.
        room: what it has to fit into, where that is known.
        divisible: whether it can be worked on in parts as it is.
    """
    hint = "the dask processor works on a part at a time: set backend.processor to dask"
    if not divisible:
        hint = "such a file can only be read as a whole: convert it to Parquet, or to CSV that is not compressed, and "
        hint += "set backend.processor to dask, which works on a part at a time"
    if not registry().usable("processor", "dask"):
        hint += ", after pip install 'core[dask]'"
    expected = "" if room is None else f", and there are {in_megabytes(room.bytes)} {room.what}"
    return DataError(f"the dataset does not fit into memory: {found}{expected}", path=where, hint=hint)


def in_megabytes(size: float) -> str:
    """As people read it."""
    return f"{size / MEGABYTE:,.0f} MB"


def _of_machine() -> Room | None:
    found = _fields(Path("/proc/meminfo"))
    if "MemAvailable" not in found:
        return None
    return Room((found["MemAvailable"] + found.get("SwapFree", 0)) * 1024, "of free memory on this machine")


def _under_cgroups() -> Room | None:
    swap = _fields(Path("/proc/meminfo")).get("SwapFree", 0) * 1024
    left = [room + swap for folder, names in _cgroups() if (room := _left(folder, *names)) is not None]
    return Room(max(0, min(left)), "left under the limit of its cgroup") if left else None


def _cgroups() -> Iterator[tuple[Path, tuple[str, str, tuple[str, ...]]]]:
    """The cgroups that this process is in, and what holds them; inside a container the root stands for its own."""
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (_CGROUPS / "memory", _V1) if controllers else (_CGROUPS, _V2)
        below = PurePosixPath(path.lstrip("/"))
        for folder in (below, *below.parents):
            yield root / folder, names


def _left(folder: Path, limit: str, use: str, reclaimable: tuple[str, ...]) -> int | None:
    """Bytes until a cgroup's limit; None where it has none."""
    found = _lines(folder / limit), _lines(folder / use)
    if not all(found) or not found[0][0].isdigit():
        return None
    given_back = _fields(folder / "memory.stat")
    return int(found[0][0]) - int(found[1][0]) + sum(given_back.get(name, 0) for name in reclaimable)


def _in_address_space() -> Room | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    taken = _lines(Path("/proc/self/statm"))
    if limit == resource.RLIM_INFINITY or not taken:
        return None
    used = int(taken[0].split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return Room(max(0, limit - used), "left under the limit of its address space (ulimit -v)")


def _fields(path: Path) -> dict[str, int]:
    """Numbers by name, of a file of lines such as ``name: 12 kB``."""
    words = (line.replace(":", " ").split() for line in _lines(path))
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _lines(path: Path) -> list[str]:
    """Of a file of the kernel's; none where it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
