"""Show what `core train` would do with a config and a dataset, without doing it: where it would run and why, how the
batch is cut, whether processed data is in the cache, how large the model is, and every problem at once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from core.cli.console import byte_count
from core.cli.options import add_backend, add_config, add_data, add_seed, config_of
from core.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_data(parser)
    add_backend(parser)
    add_seed(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    from core.data import Datasets
    from core.plan import Plan, plan

    try:
        config = config_of(args)
    except ConfigError as error:
        found = Plan(problems=list(error.problems))
    else:
        given = {name: getattr(args, name) for name in ("dataset", "training_set", "validation_set", "test_set")}
        found = plan(config, Datasets(**given), seed=args.random_seed)
    if args.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        print("\n".join(_lines(found.to_json())))
    if found.problems:
        count = len(found.problems)
        print(f"core: {count} problem{'s' * (count != 1)} would stop this run", file=sys.stderr)
        return 2
    return 0


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A plan's mapping as people read it."""
    for name, describe in _DESCRIBED.items():
        if (section := found.get(name)) is not None:
            yield f"{name:<10}{describe(section)}"
    for note in found["notes"]:
        yield f"note      {note}"
    for problem in found["problems"]:
        yield "problem   " + problem["message"].replace("\n", "\n          ")


def _backend_line(section: Mapping[str, Any]) -> str:
    cluster = "" if section["cluster"] is None else f"; {section['cluster']}"
    starts = ", which the run would start" if section["starts"] else ""
    return f"{section['type']} ({section['why']}){cluster}{starts}"


def _processor_line(section: Mapping[str, Any]) -> str:
    partitions = section["partitions"]
    return f"{section['type']}, {partitions or 'an unknown number of'} partition{'s' * (partitions != 1)}"


def _strategy_line(section: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key}: {value}" for key, value in section["options"].items())
    return f"{section['type']}{f' ({options})' if options else ''}"


def _workers_line(section: Mapping[str, Any]) -> str:
    if section["in_this_process"]:
        return f"this process, on {section['device']}"
    each = ", ".join(f"{amount:g} {name}" for name, amount in section["resources"].items())
    room = "" if section["room"] is None else f"; there is room for {section['room']}"
    retries = f"; restarted up to {section['retries']} times" if section["retries"] else ""
    return f"{section['number']} on {section['device']}{f', each with {each}' if each else ''}{room}{retries}"


def _data_line(section: Mapping[str, Any]) -> str:
    rows = "rows not counted" if section["rows"] is None else f"{section['rows']} rows"
    return f"{section['name']}: {section['columns']} columns used, {rows}, {byte_count(section['bytes'])}"


def _cache_line(section: Mapping[str, Any]) -> str:
    if section["hit"] is None:
        return f"not looked up: the files are large, and their digest is the key; {section['place']}"
    return f"{'hit' if section['hit'] else 'miss'} {section['key']} in {section['place']}"


def _batch_line(section: Mapping[str, Any]) -> str:
    low, high = section["rows_per_worker"]
    share = f"{high}" if low == high else f"{low} to {high}"
    steps = "" if section["steps_per_epoch"] is None else f"; {section['steps_per_epoch']} steps an epoch"
    steps += "" if section["steps"] is None else f", {section['steps']} in all"
    parts = section["micro_batches"]
    return (
        f"{section['rows']} rows a step, {share} on each worker"
        f"{f' in {parts} parts of up to ' + str(section['rows_per_micro_batch']) if parts > 1 else ''}{steps}"
    )


def _loader_line(section: Mapping[str, Any]) -> str:
    window = "the whole set" if section["window_bytes"] is None else f"windows of {byte_count(section['window_bytes'])}"
    held = "held in memory" if section["fully_executed"] else "streamed"
    free = "" if section["free_memory"] is None else f"; {byte_count(section['free_memory'])} of memory are free here"
    return f"{section['type']}: {byte_count(section['bytes'])} of encoded rows, {held}, shuffled in {window}{free}"


def _model_line(section: Mapping[str, Any]) -> str:
    if section["parameters"] is None:
        return "its size depends on what preprocessing finds in the data"
    size = byte_count(section["bytes"])
    return f"{section['parameters']} parameters; {size} with gradients and optimiser, where a worker holds all of them"


_DESCRIBED = {
    "backend": _backend_line,
    "processor": _processor_line,
    "strategy": _strategy_line,
    "workers": _workers_line,
    "data": _data_line,
    "cache": _cache_line,
    "batch": _batch_line,
    "loader": _loader_line,
    "model": _model_line,
}
