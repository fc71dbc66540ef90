"""What can be told of a dataset before it is preprocessed: its schema, its size, and whether it is in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from core.config.sections import Config
from core.data import cache as entries
from core.data.cache import CacheOptions
from core.data.columnwise import columns_of
from core.data.datasets import Datasets
from core.data.preprocessing import fingerprint_of, opened
from core.data.processed import Processed
from core.data.sources import DataSource, FileSource, TableSource
from core.loader import row_bytes
from core.storage import Location

DIGESTED_BYTES = 1 << 30
"""Files of more than this are not digested to look them up in the cache: a look should take a second or so."""


@attrs.frozen(kw_only=True)
class Preview:
    """What was found of a config's dataset.

    Attributes:
        sources: of the datasets given, with the columns that are used.
        places: the cache's folders, the preferred first.
        key: of the cache entry; None where the files are too large to be digested for a look.
        processed: the entry, if there is one.
    """

    sources: Sequence[DataSource]
    places: Sequence[Location]
    key: str | None
    processed: Processed | None

    def data(self) -> dict[str, Any]:
        """Name, columns, rows where they are known without reading, and bytes as stored."""
        return {
            "name": ", ".join(source.name for source in self.sources),
            "columns": max(len(source.columns) for source in self.sources),
            "rows": self._rows(),
            "bytes": _total(_stored(source) for source in self.sources),
        }

    def cache(self) -> dict[str, Any]:
        """Key, whether there is an entry, and where it is or would be."""
        place = self.places[0].join(self.key) if self.key else self.places[0]
        return {
            "key": self.key,
            "hit": None if self.key is None else self.processed is not None,
            "place": str(place) if self.processed is None else self.processed.url,
        }

    def blocks(self) -> int:
        """Parts that an engine cuts the datasets into when nobody asks for a number."""
        return sum(len(source.blocks(None)) for source in self.sources)

    def metadata(self) -> Mapping[str, Any] | None:
        """What preprocessing learnt, where it was done before."""
        return None if self.processed is None else self.processed.metadata

    def training_rows(self) -> int | None:
        """Rows to train on, where they have been counted."""
        return None if self.processed is None else self.processed.splits["training"].rows

    def encoded_bytes(self) -> int | None:
        """Bytes of all encoded rows in memory."""
        if self.processed is None:
            return None
        return sum(split.rows * row_bytes(split.schema) for split in self.processed.splits.values())

    def _rows(self) -> int | None:
        if self.processed is not None:
            return sum(split.rows for split in self.processed.splits.values())
        return _total(source.table.num_rows if isinstance(source, TableSource) else None for source in self.sources)


def preview(config: Config, datasets: Datasets, *, seed: int) -> Preview:
    """Look at the datasets of a config.

    Raises:
        DataError: a dataset cannot be read or lacks columns; every problem that was found is in it.
    """
    options = CacheOptions.of(config.backend)
    parts = opened(config, datasets, columns_of(config))
    sources = [part.source for part in parts]
    places = entries.folders(options, sources[0].location)
    key = processed = None
    if all(_cheap(source) for source in sources):
        key, _ = entries.entry_key(config, seed, fingerprint_of(parts))
        processed = entries.peek(places, key)
    return Preview(sources=sources, places=places, key=key, processed=processed)


def _cheap(source: DataSource) -> bool:
    """Whether its digest takes no more than a second. Object stores tell the versions of their files."""
    if isinstance(source, FileSource):
        local = [file.size() for file in source.files if file.location.local_path is not None]
        return sum(local) <= DIGESTED_BYTES
    return isinstance(source, TableSource)


def _stored(source: DataSource) -> int | None:
    if isinstance(source, FileSource):
        return sum(file.size() for file in source.files)
    return source.table.nbytes if isinstance(source, TableSource) else None


def _total(values: Iterable[int | None]) -> int | None:
    """The sum, where all are known."""
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)
