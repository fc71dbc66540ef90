"""The keys of `loader: {type: lance}`."""

from __future__ import annotations

import attrs

from core import LoaderOptions


@attrs.frozen(kw_only=True)
class LanceOptions(LoaderOptions):
    """Where the copy lies, and how much is read ahead."""

    directory: str | None = attrs.field(
        default=None,
        metadata={"doc": "Folder of the copy, on a fast local disk; null for the folder of temporary files."},
    )
    chunk_bytes: int = attrs.field(
        default=4 << 20,
        validator=attrs.validators.ge(1),
        metadata={"doc": "Rows of many batches are taken at once, about as many as these bytes hold."},
    )
    readahead: int = attrs.field(
        default=2,
        validator=attrs.validators.ge(1),
        metadata={"doc": "Such chunks that are taken before they are needed."},
    )
