"""Datasets at rest: whatever names or holds one, as ordered blocks of rows that can be read apart."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import pyarrow as pa

from core.data.blocks import block_size, grouped
from core.data.columns import common_type, nearest, plain, refuse_duplicates, table_of_columns, table_of_records
from core.data.digest import TableDigest
from core.data.formats import FORMATS, format_of
from core.data.formats.file import COMPRESSIONS, File
from core.data.frames import PartitionedSource, frame_source
from core.errors import DataError, Problem, StorageError
from core.storage import Location, is_url

if TYPE_CHECKING:
    import pandas as pd

    Dataset: TypeAlias = (
        str
        | os.PathLike[str]
        | pd.DataFrame
        | pa.Table
        | Mapping[str, Sequence[Any]]
        | Sequence[Mapping[str, Any]]
        | Sequence[str | os.PathLike[str]]
    )

_BLOCK_BYTES = (1 << 22, 1 << 24)
_BLOCK_ROWS = (1 << 15, 1 << 18)
"""Least and most of a block, where nobody asks for a number of them: what several workers can hold at once."""
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_GLOB = re.compile(r"[*?\[]")


@attrs.frozen
class FileBlock:
    """Reads a part of a file.

    Attributes:
        stored: bytes of the file that the part takes up.
    """

    file: File
    part: Any
    schema: pa.Schema
    stored: float

    def __call__(self) -> pa.Table:
        table = format_of(self.file.suffix).read(self.file, self.schema, self.part)
        return table if table.schema.equals(self.schema) else table.cast(self.schema)


@attrs.frozen(kw_only=True)
class FileSource:
    """Files of one schema, read in the order of their names.

    Attributes:
        name: what the user called it.
        files: in order.
        schema: of the columns that are read.
        location: the folder of the first file.
    """

    name: str
    files: tuple[File, ...]
    schema: pa.Schema
    location: Location

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def select(self, columns: Sequence[str]) -> FileSource:
        """The source with these columns alone, which it has."""
        return attrs.evolve(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def with_dictionaries(self, columns: Collection[str]) -> FileSource:
        """The source with these columns, where they are texts of Parquet files, read as dictionaries."""
        if any(FORMATS.get(file.suffix) != "parquet" for file in self.files):
            return self
        fields = [
            field.with_type(_DICTIONARY) if field.name in columns and pa.types.is_string(field.type) else field
            for field in self.schema
        ]
        return attrs.evolve(self, schema=pa.schema(fields))

    def blocks(self, count: int | None) -> list[Callable[[], pa.Table]]:
        """Readers of `count` parts where the files' formats can be cut so; None: of parts of some megabytes."""
        readers = self.parts(count)
        return grouped(readers or [self.schema.empty_table], [reader.stored for reader in readers] or [0], count)

    def parts(self, count: int | None) -> list[FileBlock]:
        """The parts that `blocks` makes readers of: more of them than `count` where there are more files."""
        sizes = [file.size() for file in self.files]
        wanted = sum(sizes) / count if count else block_size(sum(sizes), *_BLOCK_BYTES)
        found = []
        for file, size in zip(self.files, sizes, strict=True):
            parts = format_of(file.suffix).parts(file, max(1, math.ceil(size / max(wanted, 1))))
            found += [FileBlock(file, part, self.schema, size / len(parts)) for part in parts]
        return found

    def fingerprint(self) -> str:
        """A digest of the files' content, in their order."""
        digests = ":".join(file.fingerprint() for file in self.files)
        return hashlib.blake2b(digests.encode(), digest_size=32).hexdigest()


@attrs.frozen(kw_only=True)
class TableSource:
    """A table in memory.

    Attributes:
        name: what to call it in messages.
        table: its rows, plain columns.
    """

    name: str
    table: pa.Table
    location: None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.table.column_names)

    def select(self, columns: Sequence[str]) -> TableSource:
        """The source with these columns alone, which it has."""
        return attrs.evolve(self, table=self.table.select(list(columns)))

    def blocks(self, count: int | None) -> list[Callable[[], pa.Table]]:
        """Readers of `count` equal slices; None: of slices of some ten thousand rows or more."""
        rows = self.table.num_rows
        count = count or max(1, -(-rows // block_size(rows, *_BLOCK_ROWS)))
        edges = [rows * index // count for index in range(count + 1)]
        return [functools.partial(self.table.slice, a, b - a) for a, b in itertools.pairwise(edges)]

    def fingerprint(self) -> str:
        """A digest of names, types and values, however they are cut into chunks."""
        digest = TableDigest(self.table.schema)
        digest.update(self.table)
        return digest.hexdigest()


_MOST_MISSING = 5
"""Missing columns that are told one by one; more of them are another dataset."""

DataSource = FileSource | TableSource | PartitionedSource


def open_source(dataset: Dataset, columns: Sequence[str] | None = None) -> DataSource:
    """A dataset as a source of blocks.

    Args:
        dataset: a path or URL of a file, a folder or a glob; a list of such; a pandas, Dask or Modin DataFrame; a
            Ray Data dataset; a `pyarrow.Table`; a list of mappings; or a mapping of lists.
        columns: the columns to read; None for all.

    Raises:
        DataError: there is nothing, it is of an unknown kind or damaged, its files differ in their columns, or
            columns are missing (all of them are named).
        StorageError: it cannot be read.
    """
    source = _opened(dataset)
    if columns is None:
        return source
    require_columns(source, {name: f"column {name!r}" for name in columns})
    return source.select(columns)


def require_columns(source: DataSource, wanted: Mapping[str, str]) -> None:
    """Raise one DataError for all missing columns. `wanted` maps each to the path of what wants it."""
    problems = missing_columns(source, [(path, name) for name, path in wanted.items()])
    if problems:
        raise DataError(problems)


def missing_columns(source: DataSource, wanted: Sequence[tuple[str, str]]) -> list[Problem]:
    """A problem for each (path, column) whose column the source lacks."""
    missing = [(path, name) for path, name in wanted if name not in source.columns]
    if len(missing) > _MOST_MISSING:
        named = ", ".join(repr(name) for _, name in missing[:_MOST_MISSING])
        message = f"lacks {len(missing)} of the {len(wanted)} columns that are wanted: {named}, …"
        hint = f"Is it the right dataset? {nearest('', source.columns).capitalize()}"
        return [Problem(message=message, path=source.name, hint=hint)]
    return [
        Problem(message=f"{source.name} has no column {name!r}", path=path, hint=nearest(name, source.columns))
        for path, name in missing
    ]


def _opened(dataset: Any) -> DataSource:
    if isinstance(dataset, str | os.PathLike):
        return _files([_text(dataset)])
    if isinstance(dataset, pa.Table):
        refuse_duplicates(dataset.column_names, "the Arrow table")
        return TableSource(name="the Arrow table", table=plain(dataset))
    if isinstance(dataset, Mapping):
        return TableSource(name="the dataset", table=table_of_columns(dataset, "the dataset"))
    if isinstance(dataset, list | tuple) and dataset:
        if all(isinstance(item, str | os.PathLike) for item in dataset):
            return _files([_text(item) for item in dataset])
        if all(isinstance(item, Mapping) for item in dataset):
            return TableSource(name="the dataset", table=table_of_records(dataset))
    if type(dataset).__module__.partition(".")[0] == "pandas" and hasattr(dataset, "items"):
        refuse_duplicates([str(name) for name in dataset.columns], "the DataFrame")
        return TableSource(name="the DataFrame", table=table_of_columns(dict(dataset.items()), "the DataFrame"))
    if isinstance(found := frame_source(dataset), pa.Table):
        return TableSource(name="the Modin DataFrame", table=found)
    if found is not None:
        return found
    raise DataError(
        "not a dataset",
        found=dataset,
        expected="a path, URL, folder or glob, a list of them, a DataFrame, an Arrow table, or lists of values",
    )


def _text(path: str | os.PathLike[str]) -> str:
    return os.path.expanduser(os.fspath(path))


def _files(paths: list[str]) -> FileSource:
    # Absolute, since workers of a cluster stand in another folder.
    found = [file for path in paths for file in _files_at(Location(path))]
    files = [attrs.evolve(file, location=file.location.absolute()) for file in found]
    for file in files:
        if file.suffix not in FORMATS:
            raise DataError(
                f"unknown kind of file: {file.suffix or 'no suffix'}",
                path=str(file),
                expected=f"one of {' '.join(FORMATS)}, or one of them with {' '.join(COMPRESSIONS)}",
            )
    name = str(Location(paths[0])) if len(paths) == 1 else f"{Location(paths[0])} and {len(paths) - 1} more"
    folder = Location(paths[0]).absolute() if len(paths) == 1 and len(files) > 1 else files[0].location.parent
    if _GLOB.search(folder.url):
        folder = files[0].location.parent
    return FileSource(name=name, files=tuple(files), schema=_common_schema(files), location=folder)


def _files_at(location: Location) -> list[File]:
    if location.is_dir():
        return _files_in(location)
    if location.exists():
        return [File.at(location)]
    if _GLOB.search(location.url):
        filesystem, pattern = location.filesystem()
        found = [path for path in sorted(filesystem.glob(pattern)) if _matches(path, pattern, filesystem)]
        if not found:
            raise DataError("no file matches", path=str(location), hint="check the pattern")
        return [File.at(_located(location, path)) for path in found]
    siblings = _siblings(location)
    raise DataError(
        "no such file or folder", path=str(location), hint=nearest_file(location.name, siblings) if siblings else ""
    )


def _matches(path: str, pattern: str, filesystem: Any) -> bool:
    """Whether a path is a file, and not a hidden one that the pattern did not mean."""
    name, wanted = path.rpartition("/")[2], pattern.rpartition("/")[2]
    return (wanted.startswith(".") or not name.startswith(".")) and not filesystem.isdir(path)


def nearest_file(name: str, names: list[str]) -> str:
    """A hint with the most similar file name, or an empty one."""
    hint = nearest(name, names)
    return hint if hint.startswith("did you mean") else ""


def _siblings(location: Location) -> list[str]:
    try:
        return location.parent.listdir()
    except StorageError:
        return []


def _files_in(folder: Location) -> list[File]:
    """The data files below a folder; names that start with a dot or an underscore are not data."""
    filesystem, root = folder.filesystem()
    found = []
    for path in sorted(filesystem.find(root)):
        below = path[len(root.rstrip("/")) :].strip("/")
        if any(part.startswith((".", "_")) for part in below.split("/")):
            continue
        if any(name.endswith(tuple(FORMATS)) for name in (below.lower(), os.path.splitext(below.lower())[0])):
            found.append(File.at(_located(folder, path)))
    if not found:
        raise DataError("the folder has no data file", path=str(folder), expected=f"files named {' '.join(FORMATS)}")
    kinds = sorted({file.suffix for file in found})
    if len({FORMATS[kind] for kind in kinds}) > 1:
        raise DataError(
            "the folder has files of several formats",
            path=str(folder),
            found=" ".join(kinds),
            hint=f"name those that are the dataset with a glob, such as {folder.join('*' + kinds[0])}",
        )
    return found


def _located(near: Location, path: str) -> Location:
    """A path that the file system of `near` returned, as a location."""
    if not is_url(near.url) or near.local_path is not None:
        return attrs.evolve(near, url=path)
    return attrs.evolve(near, url=near.filesystem()[0].unstrip_protocol(path))


def _common_schema(files: list[File]) -> pa.Schema:
    """The columns of every file, in the order of the first, in types that hold the values of all.

    Columns without a name, which lines that end with a delimiter make, are left out.
    """
    schemas = [format_of(file.suffix).schema(file) for file in files]
    first = schemas[0]
    refuse_duplicates(first.names, str(files[0]))
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        if set(schema.names) != set(first.names):
            raise DataError(
                f"its columns differ from those of {files[0]}",
                path=str(file),
                found=schema.names,
                expected=f"{first.names}",
            )
    names = [name for name in first.names if name]
    return pa.schema([(name, common_type([schema.field(name).type for schema in schemas])) for name in names])
