"""From a request to a finished run: preprocess, make the run's folder, train where the config says, and write it up."""

from __future__ import annotations

import atexit
import logging
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from core.backends.placement import Placement, place
from core.callbacks import Callback, Reporter
from core.config import load
from core.config.sections import Backend, Config
from core.errors import ConfigError, CoreError, DataError, Interrupted, Problem, StorageError, UserError
from core.run import RunFolder, open_model, read_json, without_nan, write_json
from core.storage import Location

if TYPE_CHECKING:
    from core.data import Datasets, Processed
    from core.discovery import Kind
    from core.prediction import Evaluation, Target

log = logging.getLogger("core")

DEFAULT_SEED = 42
MAX_SEED = 2**63 - 1


@attrs.frozen(kw_only=True)
class Run:
    """A finished training run.

    Attributes:
        output_directory: the run's folder.
        model_path: the folder `Model.load` takes.
        training_statistics: ``{split: {feature or "combined": {metric: [one value an evaluation]}}}``.
        best_round: the evaluation, from 0, whose weights were kept.
        datasets: what it was trained on.
        coordinator: False on the workers of a launcher that do not speak for the run.
    """

    output_directory: Location
    training_statistics: dict[str, dict[str, dict[str, list[float]]]] = attrs.field(repr=False)
    best_round: int
    datasets: Datasets = attrs.field(repr=False)
    coordinator: bool = True

    @property
    def model_path(self) -> Location:
        return RunFolder(self.output_directory).model

    def metrics(self, split: str) -> dict[str, dict[str, float]]:
        """The metrics of the kept weights on a split; empty where the split has no rows."""
        return {
            feature: {metric: values[self.best_round] for metric, values in metrics.items()}
            for feature, metrics in self.training_statistics.get(split, {}).items()
        }


@attrs.frozen(kw_only=True)
class TrainRequest:
    """What `core train` was asked for, checked as far as can be without reading data."""

    config: Config
    datasets: Datasets
    output_directory: Location
    experiment_name: str = "experiment"
    model_name: str = "run"
    resume: RunFolder | None = None
    initial_weights: Location | None = None
    seed: int = DEFAULT_SEED
    save_progress: bool = True
    save_statistics: bool = True
    save_processed: bool = True
    command: tuple[str, ...] = ()


def train(request: TrainRequest, callbacks: Sequence[Callback] = ()) -> Run:
    """Train as asked; what `Model.train` and `core train` come to."""
    from core.backends.execute import execute
    from core.training.batching import not_applicable
    from core.training.job import Job

    if request.resume is not None and request.initial_weights is not None:
        raise ConfigError("--model-resume-path and --model-load-path exclude each other", hint="Give one of them.")
    if request.resume is not None:
        request = _resumed(request, request.resume)
    config = request.config
    placement = placed(config)
    reporter = Reporter(callbacks)

    def prepare() -> Job:
        if placement.cluster is not None:
            log.info("running on %s (%s)", placement.cluster, placement.why)
        for note in [*placement.notes, *not_applicable(config.trainer)]:
            log.info(note)
        if request.resume is None:  # said now, not after preprocessing
            RunFolder.parent_of(request.output_directory, request.experiment_name, request.model_name)
        processed = preprocess_for(
            config, request.datasets, request.seed, placement, reporter, keep=request.save_processed
        )
        _tell_of_loading(placement, processed)
        folder = request.resume or RunFolder.create(
            request.output_directory, request.experiment_name, request.model_name
        )
        if request.resume is None:
            write_json(folder.description, _description(request, processed, placement))
        logdir = config.backend.trainer.logdir
        logs = folder.location if logdir is None else Location(logdir).absolute() / folder.location.name
        reporter.context = {"config": config, "output_directory": folder.location, "logdir": logs}
        return Job(
            config=config,
            seed=request.seed,
            processed=(processed.url, dict(processed.location.options)),
            run_folder=folder.location,
            logs=logs / "logs",
            resume=request.resume is not None,
            save_progress=request.save_progress,
            initial_weights=request.initial_weights,
            strategy=placement.strategy,
            loader=placement.loader,
            device=placement.device,
        )

    with _resumable(reporter):
        outcome = execute(placement, prepare, reporter)
    folder, progress = RunFolder(outcome.job.run_folder), outcome.progress
    assert progress.best_round is not None
    run = Run(
        output_directory=folder.location,
        training_statistics=progress.statistics,
        best_round=progress.best_round,
        datasets=request.datasets,
        coordinator=outcome.coordinator,
    )
    if run.coordinator and request.save_statistics:
        from core.training.curves import draw_learning_curves

        write_json(folder.statistics, without_nan(progress.statistics))
        draw_learning_curves(progress.statistics, folder.learning_curves)
    return run


def _tell_of_loading(placement: Placement, processed: Processed) -> None:
    """What will hold more of the data than people may think."""
    from core.loader import row_bytes

    options = placement.loader.options
    if options.fully_executed:
        if placement.loader.type == "ray" and placement.cluster is not None:
            from core.backends.ray.cluster import spilling

            size = sum(split.rows * row_bytes(split.schema) for split in processed.splits.values())
            if line := spilling(placement.cluster, size):
                log.warning(line)
    elif options.window_size_bytes is None:
        log.info("backend.loader.window_size_bytes is not set: to shuffle all rows at once, all of them are held")


def placed(config: Config, *, start: bool = True) -> Placement:
    """Where a config's training runs, with its strategy's word that it can do what the trainer section asks.

    Raises:
        UserError: something cannot be. No data has been read.
    """
    from core.registry import registry
    from core.training.batching import batching, check_exact

    placement = place(config.backend, start=start)
    check_exact(config.trainer, placement.strategy.type, placement.workers)
    registry().implementation("strategy", placement.strategy.type).check(
        placement.strategy.options,
        config.trainer,
        batching(config.trainer, placement.workers),
        placement.workers,
        placement.device,
    )
    return placement


def evaluate_run(
    run: Run, *, backend: Backend, callbacks: Sequence[Callback] = (), target: Target | None = None
) -> Evaluation:
    """The kept weights of a run on its test rows, with predictions, which are written to `target` if there is one.

    Raises:
        DataError: there are no test rows.
    """
    from core.prediction import Request, evaluate

    if not run.training_statistics.get("test"):
        raise DataError(
            "there are no test rows to evaluate",
            path="preprocessing.split",
            hint="Give the test split a part of the rows, or a --test-set.",
        )
    parts = dict(run.datasets.parts())
    dataset, split = (parts["test"], "full") if "test" in parts else (parts[None], "test")
    request = Request(saved=open_model(run.model_path), dataset=dataset, backend=backend, split=split)
    return evaluate(request, Reporter(callbacks), target)


@contextmanager
def _resumable(reporter: Reporter) -> Iterator[None]:
    """Say how to go on after an interruption or a failure that left a checkpoint."""
    try:
        yield
    except CoreError as error:
        from core.training.checkpoint import latest

        folder = reporter.context.get("output_directory")
        checkpoints = folder and RunFolder(folder).checkpoints
        if (
            not checkpoints
            or latest(checkpoints) is None
            or (error.exit_status == 2 and not isinstance(error, StorageError))
        ):
            raise
        problem = error.problems[0]
        advice = f"Go on with: core train --model-resume-path {folder}"
        hint = f"{problem.hint}\n    {advice}" if problem.hint else advice
        raise type(error)([attrs.evolve(problem, hint=hint), *error.problems[1:]]) from error
    except KeyboardInterrupt:
        raise Interrupted("stopped before a checkpoint could be written") from None


def preprocess_for(
    config: Config, datasets: Datasets, seed: int, placement: Placement, reporter: Reporter, *, keep: bool = True
) -> Processed:
    from core.data import preprocess
    from core.registry import registry

    if not 0 <= seed <= MAX_SEED:
        raise UserError("is no seed", path="--random-seed", found=seed, expected=f"0 to {MAX_SEED}")
    if not keep:
        temporary = tempfile.mkdtemp(prefix="core-processed-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        config = attrs.evolve(config, backend=attrs.evolve(config.backend, cache_dir=temporary, cache_credentials=None))
    reporter("preprocess_start", dataset=str(datasets))
    processor = registry().implementation("processor", placement.processor.type)(placement.processor.options)
    try:
        processed = preprocess(
            config,
            datasets,
            seed=seed,
            processor=processor,
            progress=lambda stage, done, total: reporter("preprocess_progress", stage=stage, done=done, total=total),
        )
    finally:
        processor.close()
    rows = {name: split.rows for name, split in processed.splits.items()}
    reporter("preprocess_end", key=processed.key, url=processed.url, hit=processed.hit, rows=rows)
    return processed


def config_of_run(
    folder: RunFolder, *, backend: str | Mapping[str, Any] | None = None, overrides: Sequence[str] = ()
) -> Config:
    """The config of an earlier run. Credentials are never saved; give them again through `backend`."""
    saved = dict(read_json(folder.description, "config")["config"])
    if isinstance(saved["backend"].get("cache_credentials"), Mapping):
        saved["backend"] = {**saved["backend"], "cache_credentials": None}
    try:
        return load(saved, backend=backend, overrides=overrides)
    except ConfigError as error:
        raise ConfigError(_with_providers(error.problems, folder)) from None


def _with_providers(problems: Sequence[Problem], folder: RunFolder) -> Iterator[Problem]:
    """The problems; of a plugin that is not there any more it is said which distribution the run had it from."""
    providers = read_json(folder.description).get("distributions", {})
    for problem in problems:
        kind = problem.message.removeprefix("unknown ")
        if kind != problem.message and kind in providers:
            yield attrs.evolve(problem, hint=f"the run had it from {providers[kind]}: pip install it again")
        else:
            yield problem


def _resumed(request: TrainRequest, folder: RunFolder) -> TrainRequest:
    """The request with the seed and, unless given anew, the data of the run that is continued.

    Raises:
        ConfigError: the config describes another model than the one in the run's folder.
    """
    from core.config import model_config
    from core.data import Datasets

    before, now = model_config(config_of_run(folder)), model_config(request.config)
    changed = [key for key in before if key != "trainer" and before[key] != now[key]]
    if before["trainer"]["optimizer"]["type"] != now["trainer"]["optimizer"]["type"]:
        changed.append("trainer.optimizer")
    if changed:
        raise ConfigError(
            f"the run to continue was made with another config: {', '.join(changed)} differ",
            path=str(folder.location),
            hint="Leave --config out to use the run's own. The rest of `trainer`, and `backend`, may change.",
        )
    described = read_json(folder.description, "datasets", "random_seed")
    datasets = request.datasets
    if not datasets:
        if described["datasets"] is None:
            raise DataError(
                "the data of this run was in memory", path=str(folder.location), hint="Give the same data again."
            )
        datasets = Datasets(**described["datasets"])
    return attrs.evolve(request, datasets=datasets, seed=described["random_seed"])


def _description(request: TrainRequest, processed: Processed, placement: Placement) -> dict[str, Any]:
    """What ``description.json`` tells of a run: enough to repeat it and to continue it."""
    import torch

    from core import __version__
    from core.config import redacted
    from core.registry import registry

    plugins: dict[Kind, str] = {
        "processor": placement.processor.type,
        "strategy": placement.strategy.type,
        "loader": placement.loader.type,
    }
    return {
        "format": 1,
        "config": redacted(request.config),
        "random_seed": request.seed,
        "datasets": request.datasets.described(),
        "data": {"fingerprint": processed.fingerprint, "cache_key": processed.key},
        "rows": {name: split.rows for name, split in processed.splits.items()},
        "resources": {"workers": placement.workers, "device": placement.device, "launcher": placement.launcher},
        "plugins": plugins,
        "distributions": {kind: registry().provider(kind, name) for kind, name in plugins.items()},
        "versions": {"core": __version__, "python": platform.python_version(), "torch": torch.__version__},
        "command": list(request.command),
    }
