"""Show what `core train` would do with a config and a dataset, without doing it: where it would run and why, how the
batch is cut, whether processed data is in the cache, how large the model is, and every problem at once."""

from __future__ import annotations

import argparse
import json
import sys

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
    from core.plan import Plan, lines, plan

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
        print("\n".join(lines(found.to_json())))
    if found.problems:
        count = len(found.problems)
        print(f"core: {count} problem{'s' * (count != 1)} would stop this run", file=sys.stderr)
        return 2
    return 0
