"""Train a model on a dataset. Ends with the metrics of the best weights and where they are."""

from __future__ import annotations

import argparse

from core.cli.options import add_training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_training(parser)


def run(args: argparse.Namespace) -> int:
    from core.cli.training import print_run, request_of, train_as_asked

    finished = train_as_asked(args, request_of(args))
    if finished.coordinator:
        print_run(finished, as_json=args.json)
    return 0
