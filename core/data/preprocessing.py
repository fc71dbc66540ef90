"""From datasets to processed data: the passes over the rows, and the cache around them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from core.config.sections import Config, Preprocessing, Split
from core.data import cache as entries
from core.data.cache import CacheOptions, Writer
from core.data.columnwise import (
    Column,
    Edges,
    columns_of,
    filled_from_neighbours,
    source_columns,
    storage_schema,
)
from core.data.datasets import Datasets
from core.data.passes import Encode, FindEdges, Prepare, Summaries, Summarise, shared_name
from core.data.processed import ROW, Part, Processed
from core.data.sources import DataSource, missing_columns, open_source
from core.data.splits import SPLITS, UNUSED, SplitSummary, membership, sample, split_column
from core.errors import DataError, Problem, StorageError
from core.features.base import Metadata
from core.processor import Processor

_log = logging.getLogger("core")

Progress = Callable[[str, int, int], Any]
STAGES = ("read", "split", "summarise", "encode")


@attrs.frozen(eq=False)
class _Part:
    """One of the datasets given: the split it is (None: it is divided), where it comes from, and its rows."""

    split: str | None
    source: DataSource
    frame: Any = None
    prepare: Any = None


def preprocess(
    config: Config,
    datasets: Datasets,
    *,
    seed: int,
    processor: Processor[Any],
    cache: CacheOptions | None = None,
    progress: Progress | None = None,
) -> Processed:
    """The processed data of a config: found in the cache, or made and kept there.

    Args:
        config: of the model.
        datasets: what to process.
        seed: of the split and of sampling.
        processor: the engine that runs the passes.
        cache: where to keep the result; None for where the config says.
        progress: called with (stage, stages done, stages in all).

    Raises:
        DataError: the data cannot be read or does not fit the config; every problem that was found is in it.
        StorageError: the cache cannot be written.
    """
    report = progress or (lambda stage, done, total: None)
    options = CacheOptions.of(config.backend) if cache is None else cache
    columns = columns_of(config)
    parts = opened(config, datasets, columns)
    fingerprint = fingerprint_of(parts)
    key, inputs = entries.entry_key(config, seed, fingerprint)
    places = entries.folders(options, parts[0].source.location)
    for note in entries.not_applicable(options, places):
        _log.info(note)
    if (found := entries.find(places, key)) is not None:
        return found
    place = entries.writable(places, options)

    with _shortage_told(str(datasets)), _other_disks_told(os.path.exists):
        report("read", 0, len(STAGES))
        parts = [attrs.evolve(part, frame=processor.open(part.source)) for part in parts]
        report("split", 1, len(STAGES))
        parts = [_prepared(part, config.preprocessing, columns, seed, processor) for part in parts]
        report("summarise", 2, len(STAGES))
        metadata = _metadata(columns, [processor.fold(part.frame, Summarise(part.prepare)) for part in parts])
        report("encode", 3, len(STAGES))
        writer = Writer.begin(place, key)
        try:
            # A part is new; its folder is there until what was written is cleared away.
            with _other_disks_told(lambda part: os.path.isdir(os.path.dirname(part))):
                stored = _encoded(parts, metadata, writer, processor)
            schema = storage_schema(columns, metadata)
            processed = writer.finish(
                key=key,
                inputs=inputs,
                fingerprint=fingerprint,
                metadata=metadata,
                splits=stored,
                schema=schema.insert(0, _row_field()),
            )
        except BaseException:
            with contextlib.suppress(Exception):
                writer.abandon()
            raise
        report("encode", len(STAGES), len(STAGES))
        return processed


@contextlib.contextmanager
def _shortage_told(where: str) -> Iterator[None]:
    """Tell of memory that ran out outside the engine, which knows better what helps."""
    try:
        yield
    except MemoryError:
        raise DataError(
            "memory ran out while the dataset was preprocessed",
            path=where,
            hint="give it more, or set backend.processor to dask with more partitions (processor.parallelism)",
        ) from None


@contextlib.contextmanager
def _other_disks_told(here: Callable[[str], bool]) -> Iterator[None]:
    """Say what is wrong where a place is missing that is `here`: it is another machine that looked for it."""
    try:
        yield
    except StorageError as error:
        problem = error.problems[0]
        if "No such file" not in problem.message or not here(problem.path):
            raise
        hint = (
            "It is there on this machine, and a node of the cluster does not see it. Use a place that all nodes reach, "
            "such as s3:// or a shared disk, or processor: {type: pandas}, which works in this process."
        )
        raise StorageError([attrs.evolve(problem, hint=hint), *error.problems[1:]]) from None


def _row_field() -> Any:
    import pyarrow as pa

    return pa.field(ROW, pa.int64())


def opened(config: Config, datasets: Datasets, columns: Sequence[Column]) -> list[_Part]:
    """The datasets given, with the columns that are used.

    Raises:
        DataError: one cannot be read or lacks columns; every problem that was found is in it.
    """
    parts, problems = [], []
    for split, dataset in datasets.parts():
        source = open_source(dataset)
        wanted = [(column.path, column.feature.source) for column in columns]
        extra = split_column(config.preprocessing.split) if split is None else None
        if extra is not None:
            wanted.append(("preprocessing.split.column", extra))
        missing = missing_columns(source, wanted)
        problems += missing
        if not missing:
            parts.append(_Part(split, source.select(source_columns(columns, extra))))
    if problems:
        raise DataError(problems)
    return parts


def fingerprint_of(parts: Sequence[_Part]) -> str:
    """A digest of the datasets' content, and of which split each is."""
    text = json.dumps([(part.split, part.source.fingerprint()) for part in parts])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _prepared(
    part: _Part, preprocessing: Preprocessing, columns: Sequence[Column], seed: int, processor: Processor[Any]
) -> _Part:
    """The part with the split of each row, and the values beside its partitions, known."""
    split = preprocessing.split if part.split is None else Split()
    summary = processor.fold(part.frame, functools.partial(SplitSummary, split))
    if not summary.rows:
        raise DataError("the dataset has no rows", path=part.source.name)
    if part.split is None:
        splits = membership(preprocessing, summary, seed).codes
    else:
        splits = np.full(summary.rows, UNUSED, np.int8)
        rows = sample(preprocessing, summary.rows, seed) if part.split == "training" else np.arange(summary.rows)
        splits[rows] = SPLITS.index(part.split)
    edges = Edges()
    if neighbours := filled_from_neighbours(columns):
        edges = processor.fold(part.frame, FindEdges(neighbours, splits))
    return attrs.evolve(part, prepare=Prepare(columns, splits, edges))


def _metadata(columns: Sequence[Column], summaries: Sequence[Summaries]) -> dict[str, Metadata]:
    """The metadata of every feature, once all rows have been summed up.

    Raises:
        DataError: values that cannot be read, or columns that cannot be learnt from.
    """
    summary = summaries[0]
    for other in summaries[1:]:
        summary.merge(other)
    if summary.problems:
        raise DataError(problem for column in columns for problem in summary.problems.get(column.name, ()))
    if not summary.training:
        raise DataError(_nothing_left(columns, summary))
    for name, count in summary.dropped.items():
        _log.warning("feature %r: %d of %d rows have no value and are left out", name, count, summary.rows)
    finished: dict[str, Metadata] = {}
    problems: list[Problem] = []
    for column in columns:
        if shared_name(column) == column.name:
            try:
                # As it will be when it is read from the cache.
                finished[column.name] = json.loads(json.dumps(summary.features[column.name].finish()))
            except DataError as error:
                problems += column.problems(error)
    if problems:
        raise DataError(problems)
    return {column.name: finished[shared_name(column)] for column in columns}


def _nothing_left(columns: Sequence[Column], summary: Summaries) -> list[Problem]:
    empty = [column for column in columns if summary.dropped.get(column.name) == summary.rows]
    if not empty:
        message = "no rows are left for training: every one lacks a value of a feature with drop_row"
        return [Problem(message=message, path="preprocessing", found=summary.dropped)]
    return [
        Problem(
            message="has no value in any row",
            path=f"{column.path} (column {column.feature.source!r})",
            hint="give another column, or data that holds it",
        )
        for column in empty
    ]


def _encoded(
    parts: Sequence[_Part], metadata: Mapping[str, Metadata], writer: Writer, processor: Processor[Any]
) -> dict[str, list[Part]]:
    """The parts written, by split and in row order."""
    stored: dict[str, list[Part]] = {split: [] for split in SPLITS}
    problems: dict[str, list[Problem]] = {}
    for number, part in enumerate(parts):
        encode = Encode(prepare=part.prepare, metadata=metadata, writer=writer, dataset=number)
        for written, wrong in processor.map(part.frame, encode):
            problems = wrong | problems
            for split, file in written.items():
                stored[split].append(file)
    if problems:
        raise DataError(problem for found in problems.values() for problem in found)
    return stored
