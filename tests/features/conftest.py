from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from core.features.base import Feature, Metadata

Column = Callable[..., pa.ChunkedArray]
Learn = Callable[..., Metadata]


def _column(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind or pa.string())])


@pytest.fixture(scope="session")
def column() -> Column:
    """A dataset's column; of text, as text formats give it, unless a type is given."""
    return _column


@pytest.fixture(scope="session")
def learn() -> Learn:
    """The metadata of values, summarised in one go or cut at the given places and merged."""

    def learn(feature: Feature, values: Sequence[Any], cuts: Sequence[int] = ()) -> Metadata:
        bounds = [0, *sorted(cuts), len(values)]
        merged = feature.summary()
        for start, stop in itertools.pairwise(bounds):
            part = feature.summary()
            part.update(feature.parse(_column(values[start:stop])))
            merged.merge(part)
        return merged.finish()

    return learn


@pytest.fixture(scope="session")
def encode() -> Callable[..., list[Any]]:
    """Encoded values as Python objects, checked to be of the type the feature promises and without nulls."""

    def encode(
        feature: Feature, values: Sequence[Any], metadata: Metadata, kind: pa.DataType | None = None
    ) -> list[Any]:
        encoded = feature.encode(feature.parse(_column(values, kind)), metadata)
        assert encoded.type == feature.storage(metadata)
        assert encoded.null_count == 0
        return encoded.to_pylist()

    return encode
