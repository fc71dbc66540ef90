"""Train a model, then evaluate it on the test split and write the predictions beside the run."""

from __future__ import annotations

import argparse

from core.cli.options import add_training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_training(parser)


def run(args: argparse.Namespace) -> int:
    from core.cli.console import Console
    from core.cli.training import print_run, request_of, train_as_asked
    from core.jobs import evaluate_run
    from core.prediction import target_of
    from core.run import without_nan, write_json

    request = request_of(args)
    finished = train_as_asked(args, request)
    if not finished.coordinator:
        return 0
    console = Console(quiet=args.quiet)
    predictions = target_of(output_directory=finished.output_directory)
    result = evaluate_run(finished, backend=request.config.backend, callbacks=[console], target=predictions)
    console.say(f"{result.rows:,} test rows evaluated")
    write_json(finished.output_directory / "test_statistics.json", without_nan(result.metrics))
    print_run(finished, as_json=args.json)
    return 0
