"""What `core train` and `core experiment` share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from core.callbacks import Callback, MLflow, TensorBoard
from core.cli.console import Console, table
from core.cli.options import config_of
from core.jobs import Run, TrainRequest, config_of_run, train
from core.run import RunFolder, open_model, without_nan
from core.storage import Location


def request_of(args: argparse.Namespace) -> TrainRequest:
    """What the command line asks for."""
    from core.data import Datasets

    resume = None if args.model_resume_path is None else RunFolder.existing(args.model_resume_path)
    anew = args.config is not None or args.config_str is not None
    config = (
        config_of(args)
        if resume is None or anew
        else config_of_run(resume, backend=args.backend, overrides=args.overrides)
    )
    return TrainRequest(
        config=config,
        datasets=Datasets(
            dataset=args.dataset,
            training_set=args.training_set,
            validation_set=args.validation_set,
            test_set=args.test_set,
        ),
        output_directory=Location(args.output_directory),
        experiment_name=args.experiment_name,
        model_name=args.model_name,
        resume=resume,
        initial_weights=None if args.model_load_path is None else open_model(args.model_load_path).path,
        seed=args.random_seed,
        save_progress=not args.skip_save_progress,
        save_statistics=not args.skip_save_training_statistics,
        save_processed=not args.skip_save_processed_input,
        command=tuple(_without_secrets(sys.argv)),
    )


def _without_secrets(words: list[str]) -> Iterator[str]:
    """The command line, with values that may hold credentials left out; what they came to is in the saved config."""
    hide = False
    for word in words:
        option, equals, _ = word.partition("=")
        holds = option.replace("_", "-") in ("-b", "--backend", "-cs", "--config-str", "--set")
        yield "…" if hide else f"{option}=…" if holds and equals else word
        hide = holds and not equals


def train_as_asked(args: argparse.Namespace, request: TrainRequest) -> Run:
    """Train, with progress on the terminal."""
    callbacks: list[Callback] = [Console(quiet=args.quiet, profile=args.profile)]
    if args.tensorboard:
        callbacks.append(TensorBoard())
    if args.mlflow:
        callbacks.append(MLflow())
    return train(request, callbacks)


def print_run(run: Run, *, as_json: bool) -> None:
    """The metrics of the best weights, and where everything is."""
    scores = {split: metrics for split in ("training", "validation", "test") if (metrics := run.metrics(split))}
    if as_json:
        print(
            json.dumps({"metrics": without_nan(scores), "run": str(run.output_directory), "model": str(run.model_path)})
        )
        return
    print(f"\nbest weights, of evaluation {run.best_round + 1}:\n{table(scores)}\n")
    print(f"run    {run.output_directory}\nmodel  {run.model_path}")
