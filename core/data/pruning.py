"""What lies in a cache, and what of it may go."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

import attrs

from core.data.cache import begun_at, is_dead, verify
from core.data.processed import MANIFEST, from_manifest
from core.errors import DataError, StorageError
from core.storage import Location

_KEY = re.compile(r"[0-9a-f]{32}")


@attrs.frozen(kw_only=True)
class Entry:
    """One key of a cache.

    Attributes:
        location: its folder.
        begun: Unix time at which its data was begun to be written; None where nothing tells.
        size: bytes of everything in it.
        rows: by split; empty where there is no readable manifest.
        features: name to type.
        damage: why it cannot be used; None for a complete entry.
        writers: generations that somebody may still be writing.
        dead: generations whose writer is gone, and their bytes.
    """

    location: Location
    begun: int | None
    size: int
    rows: dict[str, int]
    features: dict[str, str]
    damage: str | None
    writers: tuple[str, ...]
    dead: dict[str, int]

    @property
    def key(self) -> str:
        return self.location.name

    @property
    def state(self) -> str:
        """`complete`, `damaged` or `being written`."""
        return "complete" if self.damage is None else "being written" if self.writers else "damaged"


@attrs.frozen(kw_only=True)
class Removal:
    """What a pruning removes: an entry, or one generation of it.

    Attributes:
        generation: None for the whole entry.
        size: bytes.
    """

    entry: Entry
    generation: str | None = None
    reason: str
    size: int


def entries_in(folder: Location) -> list[Entry]:
    """The entries of a cache's folder, the oldest first; what else lies there is nobody's business.

    Raises:
        StorageError: it cannot be listed.
    """
    found = [
        entry_at(place) for name in folder.listdir() if _KEY.fullmatch(name) and (place := folder / name).listdir()
    ]
    return sorted(found, key=lambda entry: (entry.begun or 0, entry.key))


def entry_at(location: Location, *, read: bool = False) -> Entry:
    """What is in one entry's folder.

    Args:
        location: the folder.
        read: compare the checksums of local parts, too, and not their sizes alone.
    """
    generations = [name for name in location.listdir() if begun_at(name) is not None]
    sizes = location.sizes()
    kept: str | None = None
    rows: dict[str, int] = {}
    features: dict[str, str] = {}
    damage: str | None = None
    try:
        data = location.join(MANIFEST).read_bytes()
        processed = from_manifest(location, data)
        manifest = json.loads(data)
        kept = manifest["generation"]
        rows = {name: split.rows for name, split in processed.splits.items()}
        features = {feature["name"]: feature["type"] for feature in manifest["inputs"]["features"]}
        for split in processed.splits.values():
            for part in split.parts:
                if sizes.get(f"{kept}/{part.file}") != part.bytes:
                    raise DataError("damaged or missing part", path=str(split.folder / part.file))
        if read:
            verify(processed)
    except (DataError, StorageError) as error:
        problem = error.problems[0]
        damage = f"{problem.path.removeprefix(str(location)).lstrip('/')}: {problem.message}"
    others = [name for name in generations if name != kept]
    dead = [name for name in others if is_dead(name)]
    times = [begun_at(kept)] if kept is not None else [begun_at(name) for name in generations]
    return Entry(
        location=location,
        begun=max((begun for begun in times if begun is not None), default=None),
        size=sum(sizes.values()),
        rows=rows,
        features=features,
        damage=damage,
        writers=tuple(name for name in others if name not in dead),
        dead={name: sum(size for file, size in sizes.items() if file.startswith(f"{name}/")) for name in dead},
    )


def to_remove(
    entries: Sequence[Entry], *, older_than: float | None = None, max_size: int | None = None, now: float | None = None
) -> list[Removal]:
    """What a pruning would remove: what nobody can use, then the oldest. Entries with a writer at work stay.

    Args:
        entries: of one cache or several.
        older_than: seconds since an entry was written.
        max_size: bytes of all entries together.
        now: Unix time.
    """
    now = time.time() if now is None else now
    removals: list[Removal] = []
    kept: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: (entry.begun or 0, entry.key)):
        old = older_than is not None and entry.begun is not None and now - entry.begun > older_than
        if not entry.writers and (entry.damage is not None or old):
            reason = "older" if entry.damage is None else f"damaged: {entry.damage}"
            removals.append(Removal(entry=entry, reason=reason, size=entry.size))
            continue
        removals += [
            Removal(entry=entry, generation=name, reason="left by a writer that is gone", size=size)
            for name, size in entry.dead.items()
        ]
        kept.append(attrs.evolve(entry, size=entry.size - sum(entry.dead.values())))
    total = sum(entry.size for entry in kept)
    for entry in kept:
        if max_size is None or total <= max_size:
            break
        if not entry.writers:
            removals.append(Removal(entry=entry, reason="the oldest, above the size", size=entry.size))
            total -= entry.size
    return removals


def remove(removal: Removal) -> bool:
    """Remove it; False where a writer has come meanwhile.

    Raises:
        StorageError: it cannot be removed.
    """
    location = removal.entry.location
    if removal.generation is not None:
        (location / removal.generation).remove()
        return True
    names = location.listdir()  # before the look for writers: what one begins from here on is not in it
    if entry_at(location).writers:
        return False
    (location / MANIFEST).remove()  # first: without it there is no entry, whatever happens next
    for name in names:
        (location / name).remove()
    location.remove_empty()
    return True
