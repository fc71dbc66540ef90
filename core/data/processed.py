"""Processed data: what a cache entry holds, open for reading."""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
import threading
from collections.abc import Mapping
from typing import Any, cast

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import DataError
from core.storage import Location

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
ROW = "__row__"
"""The column of a row's number in its dataset, counted from 0."""


@attrs.frozen(kw_only=True)
class Part:
    """One Parquet file of a split.

    Attributes:
        file: its name in the generation's folder.
        rows: rows in it.
        bytes: its size.
        blake2b: digest of its bytes.
    """

    file: str
    rows: int
    bytes: int
    blake2b: str


@attrs.define(kw_only=True, eq=False)
class StoredSplit:
    """One split of the processed data, an `EncodedSplit`. Can be pickled; open files are not.

    Attributes:
        folder: where its parts are.
        parts: in row order.
        stored_schema: of the parts, `__row__` included.
    """

    folder: Location
    parts: tuple[Part, ...]
    stored_schema: pa.Schema
    _starts: list[int] = attrs.field(init=False)
    _open: dict[int, pq.ParquetFile] = attrs.field(init=False, factory=dict)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self._starts = [0]
        for part in self.parts:
            self._starts.append(self._starts[-1] + part.rows)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.folder, self.parts, self.stored_schema

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        folder, parts, schema = state
        self.__init__(folder=folder, parts=parts, stored_schema=schema)  # type: ignore[misc]

    @property
    def key(self) -> str:
        """A digest of the parts' digests and of their schema."""
        digests = "".join(part.blake2b for part in self.parts)
        return checksum(digests.encode() + self.stored_schema.serialize())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._starts[-1]

    @property
    def schema(self) -> pa.Schema:
        """One column a feature: float32, int32 or bool scalars, or fixed-size lists of int32."""
        return self.stored_schema.remove(self.stored_schema.get_field_index(ROW))

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows `start` to `stop`, in order."""
        return self._read(start, stop, self.schema)

    def row_numbers(self, start: int = 0, stop: int | None = None) -> pa.ChunkedArray:
        """The numbers, from 0, that rows `start` to `stop` have in the dataset; int64."""
        schema = pa.schema([self.stored_schema.field(ROW)])
        return self._read(start, self.rows if stop is None else stop, schema).column(ROW)

    def _read(self, start: int, stop: int, schema: pa.Schema) -> pa.Table:
        start, stop = max(start, 0), min(stop, self.rows)
        pieces = []
        index = bisect.bisect_right(self._starts, start) - 1
        while start < stop:
            first, after = self._starts[index], self._starts[index + 1]
            upto = min(stop, after)
            if start < upto:
                pieces.append(self._rows_of(index, start - first, upto - first, schema.names))
                start = upto
            index += 1
        return pa.concat_tables(pieces) if pieces else schema.empty_table()

    def _rows_of(self, index: int, start: int, stop: int, columns: list[str]) -> pa.Table:
        """Rows of one part; only the row groups that hold them are decoded."""
        with self._lock:  # a ParquetFile is not for two threads
            file = self._open.get(index)
            if file is None:
                file = self._open[index] = self._opened(self.parts[index])
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            groups: list[int] = []
            first, before = 0, 0
            for group, size in enumerate(sizes):
                if before < stop and before + size > start:
                    if not groups:
                        first = before
                    groups.append(group)
                before += size
            table = pa.concat_tables(self._row_group(index, file, group, columns) for group in groups)
        return table.slice(start - first, stop - start)

    def _row_group(self, index: int, file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
        try:
            return file.read_row_group(group, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"row group {group} of processed data cannot be read: {error}",
                path=str(self.folder.join(self.parts[index].file)),
                hint="run again: it will be rebuilt",
            ) from error

    def _opened(self, part: Part) -> pq.ParquetFile:
        location = self.folder.join(part.file)
        path = location.local_path
        try:
            if path is not None:
                return pq.ParquetFile(path, pre_buffer=False)  # neither mapped nor buffered: what was read is not kept
            data = location.read_bytes()
            if checksum(data) == part.blake2b:
                return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        except (pa.ArrowException, OSError):
            pass
        raise DataError("processed data is damaged or gone", path=str(location), hint="run again: it will be rebuilt")


@attrs.frozen(kw_only=True)
class Processed:
    """Everything training needs of the data.

    Attributes:
        key: name of the cache entry, a digest of the data and the settings that shape it.
        location: folder of the entry.
        fingerprint: digest of the dataset's content.
        metadata: plain JSON of each feature.
        splits: "training", "validation" and "test", any but the first possibly without rows.
        hit: whether it was found, not made.
    """

    key: str
    location: Location
    fingerprint: str
    metadata: dict[str, dict[str, Any]]
    splits: dict[str, StoredSplit]
    hit: bool = True

    @property
    def url(self) -> str:
        """The folder, as `open` takes it."""
        return self.location.url

    @classmethod
    def open(cls, url: str, options: Mapping[str, Any] | None = None) -> Processed:
        """The entry at `url`, in any process.

        Args:
            url: of the entry's folder.
            options: fsspec options of its protocol.

        Raises:
            StorageError: there is none.
            DataError: its manifest is not one of this version.
        """
        location = Location(url, dict(options or {}))
        return from_manifest(location, location.join(MANIFEST).read_bytes())

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs; no credentials."""
        return {"url": self.url}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Processed:
        """The entry that `to_json` told of."""
        return cls.open(value["url"], options)


def checksum(data: Any) -> str:
    """Digest of a part's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def from_manifest(location: Location, data: bytes, *, hit: bool = True) -> Processed:
    """The entry that a manifest describes; nothing else is read.

    Raises:
        DataError: the manifest is damaged or of another version.
    """
    try:
        manifest = cast("dict[str, Any]", json.loads(data))
        if manifest["format"] != FORMAT_VERSION:
            raise ValueError(f"format {manifest['format']}, this version reads {FORMAT_VERSION}")
        folder = location.join(manifest["generation"])
        schema = schema_from_text(manifest["schema"])
        splits = {
            name: StoredSplit(folder=folder, parts=tuple(Part(**part) for part in parts), stored_schema=schema)
            for name, parts in manifest["splits"].items()
        }
        return Processed(
            key=manifest["key"],
            location=location,
            fingerprint=manifest["fingerprint"],
            metadata=manifest["metadata"],
            splits=splits,
            hit=hit,
        )
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataError(f"damaged manifest: {error}", path=str(location.join(MANIFEST))) from None
