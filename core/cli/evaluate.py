"""Measure a trained model on a dataset: prints the metrics, writes them and the predictions."""

from __future__ import annotations

import argparse
import json

from core.backends.detect import is_coordinator
from core.cli.options import add_prediction, prediction_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_prediction(parser)
    parser.add_argument("--skip-save-predictions", action="store_true", help="write the metrics alone")


def run(args: argparse.Namespace) -> int:
    if not is_coordinator():
        return 0  # a launcher started several of us, and the work is not divided
    from core.callbacks import Reporter
    from core.cli.console import Console, table
    from core.prediction import evaluate, target_of
    from core.run import without_nan, write_json

    request = prediction_of(args)
    target = target_of(args.output, args.output_directory)
    statistics = target.place.parent / "test_statistics.json"
    statistics.parent.makedirs()
    console = Console(quiet=args.quiet)
    save = not args.skip_save_predictions
    result = evaluate(request, Reporter([console]), target if save else None, collect=False)
    write_json(statistics, without_nan(result.metrics))
    written = {"statistics": str(statistics), **({"predictions": str(target)} if save else {})}
    console.say(f"{result.rows:,} rows evaluated")
    if args.json:
        print(json.dumps({"metrics": without_nan(result.metrics), "rows": result.rows, **written}))
    else:
        print(table({args.split: result.metrics}))
        print("\n".join(f"{what:<12} {where}" for what, where in written.items()))
    return 0
