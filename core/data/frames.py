"""Frames of parallel engines as datasets: Dask and Modin DataFrames, Ray Data datasets.

They are known by the module of their class and used through their methods, so none of these libraries has to be there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from core.data.blocks import grouped
from core.data.columns import array_of, common_type, plain, plain_column, refuse_duplicates, table_of_columns
from core.data.digest import TableDigest
from core.errors import DataError

Partition = Callable[[], Mapping[str, Any] | pa.Table]
"""Brings one partition here: a pandas DataFrame's columns by name, or an Arrow table."""


@attrs.frozen(kw_only=True)
class PartitionedSource:
    """A frame whose partitions are brought here one by one.

    Attributes:
        name: what to call it in messages.
        partitions: picklable, in row order.
        schema: of the columns that are read, in types that hold the values of every partition.
    """

    name: str
    partitions: tuple[Partition, ...]
    schema: pa.Schema
    location: None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def select(self, columns: Sequence[str]) -> PartitionedSource:
        """The source with these columns alone, which it has."""
        return attrs.evolve(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def blocks(self, count: int | None) -> list[Callable[[], pa.Table]]:
        """One reader a partition of the frame, neighbours joined where there are more than `count`."""
        readers = [functools.partial(_read, partition, self.schema) for partition in self.partitions]
        return grouped(readers, [1] * len(readers), count)

    def fingerprint(self) -> str:
        """A digest of names, types and values; it does not depend on the partitions."""
        digest = TableDigest(self.schema)
        for read in self.blocks(None):
            digest.update(read())
        return digest.hexdigest()


def frame_source(dataset: Any) -> PartitionedSource | pa.Table | None:
    """The source of a frame, or its table where it is in memory as a whole; None where `dataset` is no frame.

    Raises:
        DataError: several columns have one name.
    """
    library = type(dataset).__module__.partition(".")[0]
    if library == "modin" and hasattr(dataset, "modin"):
        frame = dataset.modin.to_pandas()
        refuse_duplicates([str(name) for name in frame.columns], "the Modin DataFrame")
        return table_of_columns(dict(frame.items()), "the Modin DataFrame")
    if library == "dask" and hasattr(dataset, "to_delayed") and hasattr(dataset, "dtypes"):
        return _dask_source(dataset)
    if library == "ray" and hasattr(dataset, "to_arrow_refs"):
        return _ray_source(dataset)
    return None


def _dask_source(frame: Any) -> PartitionedSource:
    name = "the Dask DataFrame"
    refuse_duplicates([str(column) for column in frame.columns], name)
    partitions = tuple(functools.partial(_dask_partition, part) for part in frame.to_delayed())
    return _source(name, partitions, [str(column) for column in frame.columns])


def _dask_partition(part: Any) -> dict[str, Any]:
    # By this thread: it may be one of an engine's, which has as many as there are processors.
    return {str(name): values for name, values in part.compute(scheduler="synchronous").items()}


def _ray_source(dataset: Any) -> PartitionedSource:
    name = "the Ray Data dataset"
    options = dataset.context.execution_options
    options.preserve_order, preserved = True, options.preserve_order
    try:
        dataset = dataset.materialize()
    finally:
        options.preserve_order = preserved
    columns = [str(column) for column in dataset.columns() or ()]
    return _source(name, tuple(functools.partial(_ray_block, ref) for ref in dataset.to_arrow_refs()), columns)


def _ray_block(ref: Any) -> pa.Table:
    import ray  # by whom has a reference

    return ray.get(ref)


def _source(name: str, partitions: tuple[Partition, ...], columns: list[str]) -> PartitionedSource:
    kinds: dict[str, list[pa.DataType]] = {column: [] for column in columns}
    for partition in partitions:
        found = partition()
        if missing := [column for column in columns if column not in _names(found)]:
            raise DataError("its partitions differ in their columns", path=name, found=missing)
        for column in columns:
            kinds[column].append(_column(found, column, None).type)
    schema = pa.schema([(column, common_type(kinds[column])) for column in columns])
    return PartitionedSource(name=name, partitions=partitions, schema=schema)


def _names(partition: Mapping[str, Any] | pa.Table) -> Any:
    return partition.column_names if isinstance(partition, pa.Table) else partition


def _column(partition: Mapping[str, Any] | pa.Table, name: str, kind: pa.DataType | None) -> pa.ChunkedArray:
    if not isinstance(partition, pa.Table):
        return array_of(partition[name], kind)
    column = plain_column(partition.column(name))
    return column if kind is None or column.type == kind else array_of(column.to_pylist(), kind)


def _read(partition: Partition, schema: pa.Schema) -> pa.Table:
    found = partition()
    return plain(pa.table([_column(found, f.name, f.type) for f in schema], schema=schema))
