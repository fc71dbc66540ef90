"""The content-addressed cache of processed data.

``<cache_dir>/.core_cache/<key>/manifest.json`` names the parts of one generation, a folder beside it, with their
sizes and checksums. It is written last, in one step: without it nothing exists, so an interrupted write cannot be
mistaken for an entry, and two writers of one key cannot mix their parts.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import attrs
import pyarrow as pa

from core.config.environment import expand
from core.config.sections import Backend, Config
from core.data.processed import FORMAT_VERSION, MANIFEST, Part, Processed, checksum, from_manifest, schema_to_text
from core.errors import ConfigError, DataError, StorageError
from core.storage import Location, user_cache

_log = logging.getLogger("core")

FOLDER = ".core_cache"
_ABANDONED_SECONDS = 6 * 3600
"""A generation without a manifest that is older than this was left behind by a writer that died elsewhere."""


@attrs.frozen(kw_only=True)
class CacheOptions:
    """Where processed data is kept.

    Attributes:
        directory: any fsspec URL; None for beside the dataset.
        credentials: fsspec options by protocol; never shown.
    """

    directory: str | None = None
    credentials: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, backend: Backend) -> CacheOptions:
        """Those of a config's backend; a file of credentials is read.

        Raises:
            ConfigError: that file is not a mapping of options by protocol.
        """
        given = backend.cache_credentials or {}
        if isinstance(given, str):
            given = read_credentials(given)
        return cls(directory=backend.cache_dir, credentials=given)


def read_credentials(path: str) -> dict[str, Any]:
    """The fsspec options by protocol in a JSON file, `${VARIABLE}` in their values replaced.

    Raises:
        ConfigError: it holds no such thing, or a variable is not set.
    """
    wrong = ConfigError(
        "not a JSON file of credentials",
        path=f"backend.cache_credentials: {path}",
        expected='such as {"s3": {"key": "…", "secret": "…"}}',
    )
    try:
        value = json.loads(Location(path).read_bytes())
    except ValueError:
        raise wrong from None
    if not isinstance(value, dict) or not all(isinstance(options, dict) for options in value.values()):
        raise wrong
    section: Any = {"backend": {"cache_credentials": value}}
    expanded, problems = expand(section, os.environ)
    if problems:
        raise ConfigError(
            attrs.evolve(problem, path=".".join([f"backend.cache_credentials: {path}", *map(str, keys[2:])]))
            for keys, problem in problems
        )
    return cast("dict[str, Any]", expanded["backend"]["cache_credentials"])


def entry_key(config: Config, seed: int, fingerprint: str) -> tuple[str, dict[str, Any]]:
    """The key of the data processed so, and what it is made of: all that can change an encoded row, nothing else."""
    preprocessing = config.preprocessing
    inputs = {
        "format": FORMAT_VERSION,
        "data": fingerprint,
        "seed": seed,
        "split": [type(preprocessing.split).__name__, attrs.asdict(preprocessing.split)],
        "sample": [preprocessing.sample_ratio, preprocessing.sample_size],
        "features": [
            {
                "role": role,
                "name": feature.name,
                "type": feature.type,
                "column": feature.source,
                "tied": getattr(feature, "tied", None),
                "preprocessing": attrs.asdict(feature.preprocessing),  # type: ignore[union-attr]
            }
            for role, features in (("input", config.input_features), ("output", config.output_features))
            for feature in features
        ],
    }
    text = json.dumps(inputs, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), json.loads(text)


def folders(options: CacheOptions, dataset: Location | None) -> list[Location]:
    """The folders that may hold entries, the preferred first."""
    if options.directory is not None:
        return [Location.of(os.path.expanduser(options.directory), options.credentials).absolute().join(FOLDER)]
    beside = [] if dataset is None else [Location.of(dataset.join(FOLDER).url, options.credentials)]
    return [*beside, user_cache().join(FOLDER)]


def not_applicable(options: CacheOptions, places: Sequence[Location]) -> list[str]:
    """One line for each protocol that credentials are given for and no place of the cache has."""
    from fsspec.utils import get_protocol

    used = {get_protocol(place.url) for place in places}
    return [
        f"backend.cache_credentials.{protocol} does not apply: the cache is at {places[0].parent}"
        for protocol in options.credentials
        if protocol not in used
    ]


def find(places: Sequence[Location], key: str) -> Processed | None:
    """A complete and undamaged entry in one of the folders; a damaged one is reported and passed over."""
    for place in places:
        try:
            if (processed := _complete(place.join(key))) is not None:
                return processed
        except (DataError, StorageError) as error:
            problem = error.problems[0]
            _log.warning("cache: %s: %s: rebuilding", problem.path, problem.message)
    return None


def peek(places: Sequence[Location], key: str) -> Processed | None:
    """As `find`, but its parts are not looked at: they may turn out to be damaged."""
    for place in places:
        with contextlib.suppress(DataError, StorageError):
            if (processed := _listed(place.join(key))) is not None:
                return processed
    return None


def _complete(entry: Location) -> Processed | None:
    """The entry, or None where there is none; raises where it is damaged."""
    if (processed := _listed(entry)) is not None:
        verify(processed)
    return processed


def _listed(entry: Location) -> Processed | None:
    """What the entry's manifest names; None where there is none."""
    try:
        if not entry.join(MANIFEST).exists():
            return None
    except StorageError:  # a place that cannot be looked at; writing will say why
        return None
    return from_manifest(entry, entry.join(MANIFEST).read_bytes())


def writable(places: Sequence[Location], options: CacheOptions) -> Location:
    """The first folder that can be written.

    Raises:
        StorageError: the one that the config names, or the last one, cannot be.
    """
    for place in places:
        probe = place.join(f".{uuid.uuid4().hex}.tmp")
        try:
            place.makedirs()
            probe.write_bytes(b"")
            probe.remove()
            if options.directory is None and place.local_path is None:
                _log.info("cache: keeping processed data beside the dataset, in %s", place)
            return place
        except StorageError as error:
            if place is places[-1]:
                where = "backend.cache_dir" if options.directory is not None else "cache"
                raise StorageError([attrs.evolve(error.problems[0], path=f"{where}: {place.parent}")]) from None
            _log.warning("cache: cannot write beside the dataset (%s); using %s", place.parent, places[-1].parent)
    raise AssertionError("no place was given")


@attrs.frozen(kw_only=True)
class Writer:
    """Writes one generation of an entry. Can be pickled: workers write parts, the coordinator the manifest.

    Attributes:
        entry: folder of the key.
        generation: name of the folder of parts, unique; it tells when, where and by which process it was begun.
    """

    entry: Location
    generation: str

    @classmethod
    def begin(cls, place: Location, key: str) -> Writer:
        """A new generation of `key`."""
        entry = place.join(key)
        name = f"{int(time.time())}-{_host()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        entry.join(name).makedirs()
        return cls(entry=entry, generation=name)

    def part(self, name: str, rows: int, data: pa.Buffer) -> Part:
        """Write one part."""
        self.entry.join(self.generation, name).write_bytes(data)
        return Part(file=name, rows=rows, bytes=data.size, blake2b=checksum(data))

    def finish(
        self,
        *,
        key: str,
        inputs: Mapping[str, Any],
        fingerprint: str,
        metadata: Mapping[str, Any],
        splits: Mapping[str, Sequence[Part]],
        schema: pa.Schema,
    ) -> Processed:
        """Make the entry exist, and clear away what interrupted writers left. If another writer was first, use its."""
        manifest = {
            "format": FORMAT_VERSION,
            "key": key,
            "generation": self.generation,
            "fingerprint": fingerprint,
            "inputs": inputs,
            "schema": schema_to_text(schema),
            "sizes": {name: sum(part.rows for part in parts) for name, parts in splits.items()},
            "splits": {name: [attrs.asdict(part) for part in parts] for name, parts in splits.items()},
            "metadata": metadata,
        }
        data = json.dumps(manifest, allow_nan=False).encode()  # an indent would cost the encoder in C
        place = self.entry.join(MANIFEST)
        other = self._of_another()
        if other is None and not place.write_new(data):
            other = self._of_another()
            if other is None:  # what is there is damaged
                place.write_atomic(data)
        if other is not None:
            self.abandon()
            return attrs.evolve(other, hit=False)
        _clear(self.entry.parent, self.entry)
        return from_manifest(self.entry, data, hit=False)

    def _of_another(self) -> Processed | None:
        """The entry, where another writer has finished it."""
        with contextlib.suppress(DataError, StorageError):
            return _complete(self.entry)
        return None

    def abandon(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(StorageError):
            self.entry.join(self.generation).remove()


def verify(processed: Processed) -> None:
    """Raise where a part is not what the manifest says. Local parts are read through; remote ones when opened."""
    parts = [(split.folder.join(part.file), part) for split in processed.splits.values() for part in split.parts]

    def check(item: tuple[Location, Part]) -> None:
        location, part = item
        if location.local_path is None:
            good = location.info().get("size") == part.bytes
        else:
            with location.open() as file:
                good = os.fstat(file.fileno()).st_size == part.bytes and _checksum_of(file) == part.blake2b
        if not good:
            raise DataError("damaged part", path=str(location))

    with ThreadPoolExecutor() as executor:
        list(executor.map(check, parts))


def _checksum_of(file: Any) -> str:
    return hashlib.file_digest(file, functools.partial(hashlib.blake2b, digest_size=16)).hexdigest()


def _clear(place: Location, entry: Location) -> None:
    """Remove the generations that nobody will finish: of this key and, on a local disk, of every key."""
    entries = [entry]
    if place.local_path is not None:
        entries = [place.join(name) for name in place.listdir() if not name.startswith(".")]
    for other in entries:
        with contextlib.suppress(StorageError, DataError):
            _clear_entry(other)


def _clear_entry(entry: Location) -> None:
    names = entry.listdir()
    kept = None
    if MANIFEST in names:
        kept = json.loads(entry.join(MANIFEST).read_bytes()).get("generation")
    for name in names:
        if name.startswith(f"{MANIFEST}."):  # a manifest that was being written
            if time.time() - float(entry.join(name).info().get("mtime", time.time())) > _ABANDONED_SECONDS:
                entry.join(name).remove()
        elif name not in (MANIFEST, kept) and is_dead(name):
            entry.join(name).remove()


def begun_at(generation: str) -> int | None:
    """The Unix time at which a generation was begun; None for a name that is no generation's."""
    found = re.fullmatch(r"(\d+)-[0-9a-z]+-\d+-[0-9a-z]+", generation)
    return int(found[1]) if found else None


def is_dead(generation: str) -> bool:
    """Whether the writer of a generation is gone."""
    if (begun := begun_at(generation)) is None:
        return False
    if time.time() - begun > _ABANDONED_SECONDS:
        return True
    _, host, process, _ = generation.split("-")
    if host != _host() or os.name == "nt":  # Windows has no signal that only asks
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _host() -> str:
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()
