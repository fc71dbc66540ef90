"""Options that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.config.sections import Config
    from core.prediction import Request


def add_config(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-c", "--config", metavar="FILE", help="the YAML file that describes the model")
    which.add_argument("-cs", "--config-str", metavar="YAML", help="the same as text")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="change a key of the config, as in trainer.epochs=3; may be repeated",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset", metavar="DATA", help="file, folder, glob or URL; split as the config says")
    for split in ("training", "validation", "test"):
        parser.add_argument(f"--{split}-set", metavar="DATA", help=f"{split} rows, instead of --dataset")


def add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--backend",
        metavar="BACKEND",
        help="local, ray, deepspeed, horovod, or a YAML mapping or file; merged over the config's section",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-rs", "--random-seed", type=int, default=42, metavar="N", help="seed of splits, weights and order (42)"
    )


def add_training(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_data(parser)
    add_backend(parser)
    add_seed(parser)
    parser.add_argument(
        "-od", "--output-directory", default="results", metavar="DIR", help="where runs are kept (results)"
    )
    parser.add_argument(
        "--experiment-name", default="experiment", metavar="NAME", help="first part of the run's folder"
    )
    parser.add_argument("--model-name", default="run", metavar="NAME", help="second part of the run's folder")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-mrp", "--model-resume-path", metavar="RUN", help="continue the run in this folder")
    start.add_argument("-mlp", "--model-load-path", metavar="MODEL", help="start from the weights of this model")
    parser.add_argument("--skip-save-progress", action="store_true", help="write no checkpoints")
    parser.add_argument("--skip-save-training-statistics", action="store_true", help="write no statistics and curves")
    parser.add_argument("--skip-save-processed-input", action="store_true", help="remove the processed data at the end")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard events into the run's folder")
    parser.add_argument("--profile", action="store_true", help="show at the end where the time of training went")
    parser.add_argument("--mlflow", action="store_true", help="log to MLflow, where its environment variables say")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def add_prediction(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--model-path", required=True, metavar="MODEL", help="the model folder, or its run's folder"
    )
    parser.add_argument("--dataset", required=True, metavar="DATA", help="file, folder, glob or URL")
    parser.add_argument(
        "--split",
        choices=["full", "training", "validation", "test"],
        default="full",
        help="only the rows that training put into this split (full)",
    )
    parser.add_argument("-bs", "--batch-size", type=_positive, metavar="N", help="rows at a time")
    parser.add_argument("-od", "--output-directory", metavar="DIR", help="where the results are written (results)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PLACE",
        help="predictions: a .parquet, .csv or .jsonl file, or a folder/ of Parquet parts; the same command goes on "
        "where one was stopped",
    )
    parser.add_argument("--index-column", metavar="COLUMN", help="a column of the dataset to carry over")
    add_backend(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def config_of(args: argparse.Namespace) -> Config:
    """The checked config that `--config` or `--config-str`, `--set` and `--backend` describe."""
    from core.config import load, loads
    from core.errors import UserError

    given: dict[str, Any] = {"overrides": args.overrides, "backend": args.backend}
    if args.config_str is not None:
        return loads(args.config_str, **given)
    if args.config is None:
        raise UserError("no config given", path="--config", hint="Give --config FILE, or --config-str with YAML text.")
    return load(args.config, **given)


def prediction_of(args: argparse.Namespace) -> Request:
    """What the options of `add_prediction` ask for."""
    from core.api import read_config
    from core.prediction import Request
    from core.run import open_model

    saved = open_model(args.model_path)
    return Request(
        saved=saved,
        dataset=args.dataset,
        backend=read_config(saved.config, backend=args.backend).backend,
        split=args.split,
        batch_size=args.batch_size,
        index_column=args.index_column,
    )
