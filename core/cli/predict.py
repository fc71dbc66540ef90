"""Predict the outputs of a dataset with a trained model, one row a row, in their order."""

from __future__ import annotations

import argparse
import json

from core.backends.detect import is_coordinator
from core.cli.options import add_prediction, prediction_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_prediction(parser)


def run(args: argparse.Namespace) -> int:
    if not is_coordinator():
        return 0  # a launcher started several of us, and the work is not divided
    from core.callbacks import Reporter
    from core.cli.console import Console
    from core.prediction import predict_to, target_of

    request = prediction_of(args)
    target = target_of(args.output, args.output_directory)
    console = Console(quiet=args.quiet)
    rows = predict_to(request, target, Reporter([console]))
    console.say(f"{rows:,} rows predicted")
    print(json.dumps({"rows": rows, "predictions": str(target)}) if args.json else f"predictions  {target}")
    return 0
