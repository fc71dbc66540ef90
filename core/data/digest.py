"""The digest of a table's content: of names, types and values, however they are cut into chunks and parts."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class TableDigest:
    """Takes in a table part by part."""

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = 0
        self._columns = [_ColumnDigest(name, kind) for name, kind in zip(schema.names, schema.types, strict=True)]

    def update(self, table: pa.Table) -> None:
        """Take in the rows that come next."""
        self._rows += table.num_rows
        for digest, column in zip(self._columns, table.columns, strict=True):
            for chunk in column.chunks:
                digest.update(chunk)

    def hexdigest(self) -> str:
        """The digest of all rows so far."""
        digest = hashlib.blake2b(digest_size=32)
        for column in self._columns:
            digest.update(column.digest(self._rows))
        return digest.hexdigest()


class _ColumnDigest:
    """The values of a column as bytes that do not depend on chunks, offsets, or what lies under nulls."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self._head = f"{name}:{kind}:"
        self._validity, self._sizes, self._values = (hashlib.blake2b(digest_size=32) for _ in range(3))

    def update(self, chunk: pa.Array) -> None:
        self._validity.update(chunk.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
        kind = chunk.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            filled = chunk.fill_null("" if pa.types.is_string(kind) else b"")
            self._sizes.update(pc.binary_length(filled).to_numpy(zero_copy_only=False))
            offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset :][: len(filled) + 1]
            if filled.buffers()[2] is not None and len(filled):
                self._values.update(memoryview(filled.buffers()[2])[offsets[0] : offsets[-1]])
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            self._values.update(chunk.fill_null(0).to_numpy(zero_copy_only=False).data)
        else:
            # Rare kinds (times, lists, decimals): their text says it all.
            self._values.update("".join(f"{value!r}\n" for value in chunk.to_pylist()).encode())

    def digest(self, rows: int) -> bytes:
        parts = (self._validity, self._sizes, self._values)
        return f"{self._head}{rows}:".encode() + b"".join(part.digest() for part in parts)
