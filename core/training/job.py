"""One worker's part of a training run: everything it needs comes in a `Job`, so it can start in any process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import attrs
import torch

from core.config.fields import Selected
from core.config.sections import Config
from core.data import Processed
from core.errors import ConfigError
from core.loader import Loader
from core.model import build
from core.registry import registry
from core.run import RunFolder, open_model, save_model
from core.storage import Location
from core.strategy import Strategy
from core.training import checkpoint
from core.training.batching import learning_rate
from core.training.checkpoint import Progress
from core.training.loop import TRAINING, Report, Run, train
from core.training.profile import Profile


@attrs.frozen(kw_only=True)
class Job:
    """A training run, ready to start on every worker.

    Attributes:
        processed: URL of the processed data, and the fsspec options to open it with.
        run_folder: where rank 0 writes.
        logs: folder of the workers' logs.
        resume: continue from the newest checkpoint in `run_folder`.
        save_progress: write checkpoints.
        initial_weights: a model folder to start from, or None.
        strategy, loader: chosen plugins with their options.
        device: ``cpu`` or ``cuda``; on CUDA a worker takes the device of its LOCAL_RANK.
    """

    config: Config
    seed: int
    processed: tuple[str, dict[str, Any]] = attrs.field(repr=False)  # credentials may be among the options
    run_folder: Location
    logs: Location
    resume: bool
    save_progress: bool
    initial_weights: Location | None
    strategy: Selected
    loader: Selected
    device: str


def make_strategy(chosen: Selected, device: str) -> Strategy:
    """The strategy's object, its group not joined yet."""
    place = torch.device(device, int(os.environ.get("LOCAL_RANK", "0"))) if device == "cuda" else torch.device(device)
    made: Strategy = registry().implementation("strategy", chosen.type)(chosen.options, place)
    return made


def run_job(job: Job, strategy: Strategy, report: Report, interrupted: Callable[[], bool]) -> Progress:
    """Train as this worker. The strategy has started; whoever started it stops it."""
    profile = Profile()
    folder = RunFolder(job.run_folder)
    processed = Processed.open(*job.processed)
    loader_class = registry().implementation("loader", job.loader.type)
    loaders: dict[str, Loader] = {}
    try:
        for name, split in processed.splits.items():
            if split.rows or name == TRAINING:
                loaders[name] = loader_class(split, job.loader.options, strategy.device)
        _prepare(job, strategy, processed)
        run = Run(
            config=job.config,
            seed=job.seed,
            strategy=strategy,
            loaders=loaders,
            metadata=processed.metadata,
            checkpoints=folder.checkpoints if job.save_progress else None,
            save_best=lambda weights: save_model(folder.model, job.config, processed.metadata, job.seed, weights),
            report=report,
            interrupted=interrupted,
            profile=profile,
        )
        return train(run, _resume(job, strategy, folder))
    finally:
        for loader in loaders.values():
            loader.close()


def _prepare(job: Job, strategy: Strategy, processed: Processed) -> None:
    torch.manual_seed(job.seed)
    model = build(job.config, processed.metadata)
    if job.initial_weights is not None:
        _start_from(model, job.initial_weights)
    model = model.to(strategy.device)
    if job.config.trainer.compile:
        model.compile()  # in place: parameter names stay as they are
    trainer = job.config.trainer
    rate = learning_rate(trainer, strategy.world_size)

    def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
        try:
            return trainer.optimizer.build(parameters, rate)
        except ValueError as error:
            raise ConfigError(str(error), path="trainer.optimizer") from error

    strategy.prepare(model, make_optimizer)


def _start_from(model: torch.nn.Module, path: Location) -> None:
    """Weights of an earlier model, all of which must fit."""
    saved = open_model(path)
    try:
        model.load_state_dict(saved.weights())
    except RuntimeError as error:
        raise ConfigError(
            f"the weights of {path} do not fit this config and dataset: {error}",
            path="--model-load-path",
            hint="Use the features, vocabularies and layer sizes the weights were trained with.",
        ) from error


def _resume(job: Job, strategy: Strategy, folder: RunFolder) -> Progress:
    found = checkpoint.latest(folder.checkpoints) if job.resume else None
    if found is None:
        return Progress()
    empty: dict[str, Any] = {"model": {}, "optimizer": {}}
    strategy.load(checkpoint.load_state(found) if strategy.rank == 0 else empty)
    return checkpoint.load_progress(found)
