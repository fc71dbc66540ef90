"""Measure a trained model on a dataset: prints the metrics, writes them and the predictions."""

from __future__ import annotations

import argparse
import json

from core.backends.detect import is_coordinator
from core.cli.options import add_prediction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_prediction(parser)
    parser.add_argument("--skip-save-predictions", action="store_true", help="write the metrics alone")


def run(args: argparse.Namespace) -> int:
    if not is_coordinator():
        return 0  # a launcher started several of us, and the work is not divided
    from core.api import read_config
    from core.callbacks import Reporter
    from core.cli.console import Console, table
    from core.prediction import evaluate, predictions_path, write_predictions
    from core.run import open_model, without_nan, write_json

    saved = open_model(args.model_path)
    target = predictions_path(args.output, args.output_directory)
    target.parent.makedirs()
    console = Console(quiet=args.quiet)
    result = evaluate(
        saved,
        args.dataset,
        backend=read_config(saved.config, backend=args.backend).backend,
        split=args.split,
        batch_size=args.batch_size,
        index_column=args.index_column,
        reporter=Reporter([console]),
    )
    written = {"statistics": str(target.parent / "test_statistics.json")}
    write_json((target.parent / "test_statistics.json"), without_nan(result.metrics))
    if not args.skip_save_predictions:
        with write_predictions(target) as write:
            write(result.predictions)
        written["predictions"] = str(target)
    console.say(f"{result.rows:,} rows evaluated")
    if args.json:
        print(json.dumps({"metrics": without_nan(result.metrics), "rows": result.rows, **written}))
    else:
        print(table({args.split: result.metrics}))
        print("\n".join(f"{what:<12} {where}" for what, where in written.items()))
    return 0
