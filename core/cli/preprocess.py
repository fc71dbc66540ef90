"""Fill the cache of processed data, or find it filled, and print its key and place."""

from __future__ import annotations

import argparse
import json

from core.backends.detect import is_coordinator
from core.cli.options import add_backend, add_config, add_data, add_seed, config_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_data(parser)
    add_backend(parser)
    add_seed(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    if not is_coordinator():
        return 0  # a launcher started several of us, and the work is not divided
    from core.api import preprocess
    from core.cli.console import Console

    processed = preprocess(
        config_of(args),
        args.dataset,
        training_set=args.training_set,
        validation_set=args.validation_set,
        test_set=args.test_set,
        random_seed=args.random_seed,
        callbacks=[Console(quiet=args.quiet)],
    )
    rows = {name: split.rows for name, split in processed.splits.items()}
    if args.json:
        print(json.dumps({"key": processed.key, "url": processed.url, "hit": processed.hit, "rows": rows}))
    else:
        print(f"key    {processed.key}\nplace  {processed.url}")
    return 0
