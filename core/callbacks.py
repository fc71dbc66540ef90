"""Callbacks: what may be told of a run while it goes on. They run on the coordinator, whatever trains elsewhere."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import PluginError
from core.storage import Location

if TYPE_CHECKING:
    from core.config.sections import Config

Scores = dict[str, dict[str, dict[str, float]]]
"""``{"training" | "validation" | "test": {feature or "combined": {metric: value}}}``"""


class Callback:
    """Override what you need. Later versions may pass more keywords: end your signatures with ``**details``."""

    def on_preprocess_start(self, *, dataset: str, **details: Any) -> None:
        """`dataset`: what is about to be read, as text."""

    def on_preprocess_progress(self, *, stage: str, done: int, total: int, **details: Any) -> None:
        """`done` of `total` partitions have gone through `stage`."""

    def on_preprocess_end(self, *, key: str, url: str, hit: bool, rows: dict[str, int], **details: Any) -> None:
        """`url`: the cache entry; `hit`: whether it was there already; `rows`: by split."""

    def on_train_start(
        self,
        *,
        config: Config,
        output_directory: Location,
        logdir: Location,
        steps: int,
        epochs: int,
        done: int,
        exchanged_bytes: int,
        **details: Any,
    ) -> None:
        """`steps`: optimiser steps of the whole run, of which `done` were made before.

        `exchanged_bytes` are the gradients that `trainer.exact` gathers on every worker in each step; else 0.
        `logdir` is the run's folder in `backend.trainer.logdir`, where that is set, else `output_directory`.
        """

    def on_train_end(
        self, *, statistics: dict[str, Any], best_round: int | None, profile: dict[str, float], **details: Any
    ) -> None:
        """`statistics`: as in ``training_statistics.json``; `best_round` counts evaluations from 0.

        `profile`: seconds of worker 0 by part of the loop (`core.training.profile.PARTS`), since it began or resumed.
        """

    def on_epoch_start(self, *, epoch: int, **details: Any) -> None:
        """`epoch` counts from 0."""

    def on_epoch_end(self, *, epoch: int, round: int, step: int, scores: Scores, **details: Any) -> None:
        """After each evaluation: at the end of an epoch, and at the checkpoints inside it where there are any."""

    def on_batch_start(self, *, step: int, **details: Any) -> None:
        """Before optimiser step `step`, from 0."""

    def on_batch_end(self, *, step: int, loss: float, rows: int, **details: Any) -> None:
        """`step` steps are done; `loss`: of the last one, over all workers; `rows`: in it."""

    def on_evaluation_start(self, *, split: str, rows: int, **details: Any) -> None:
        """A split is about to be evaluated."""

    def on_evaluation_progress(self, *, rows: int, **details: Any) -> None:
        """`rows` more have been evaluated."""

    def on_evaluation_end(self, *, split: str, **details: Any) -> None:
        """A split has been evaluated."""

    def on_checkpoint(self, *, path: str, step: int, **details: Any) -> None:
        """A checkpoint was written."""

    def on_prediction_progress(self, *, rows: int, **details: Any) -> None:
        """`rows` more have been predicted."""

    def should_stop(self) -> bool:
        """Asked after each evaluation; True ends training as early stopping does."""
        return False


class Reporter:
    """Passes events on to callbacks. An error in one ends the run and names the callback."""

    def __init__(self, callbacks: Sequence[Callback] = (), **context: Any) -> None:
        self.callbacks = tuple(callbacks)
        self.context = context
        for callback in self.callbacks:
            if not isinstance(callback, Callback) or inspect.isclass(callback):
                raise PluginError("not a callback", found=callback, expected="an object of a subclass of core.Callback")

    @property
    def every_batch(self) -> bool:
        """Whether a callback wants each batch, rather than one now and then."""
        return any(
            getattr(type(callback), name) is not getattr(Callback, name) and not getattr(callback, "throttled", False)
            for callback in self.callbacks
            for name in ("on_batch_start", "on_batch_end")
        )

    def __call__(self, event: str, /, **details: Any) -> None:
        if event == "train_start":
            details |= self.context
        for callback in self.callbacks:
            getattr(callback, f"on_{event}")(**details)

    def should_stop(self) -> bool:
        return any(callback.should_stop() for callback in self.callbacks)


class TensorBoard(Callback):
    """Scalars of every evaluation for TensorBoard: ``<split>/<feature>/<metric>`` over optimiser steps.

    Args:
        logdir: folder of the event files; by default ``tensorboard`` in the run's folder, or in
            `backend.trainer.logdir`.
    """

    def __init__(self, logdir: str | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise PluginError("TensorBoard is not installed", hint="pip install 'core[tensorboard]'") from error
        self._logdir = logdir
        self._make = SummaryWriter

    def on_train_start(self, *, logdir: Location, **details: Any) -> None:
        self._place = logdir / "tensorboard" if self._logdir is None else Location(self._logdir)
        # TensorBoard writes to disks alone; what goes elsewhere is copied after each evaluation.
        self._staging = None if self._place.local_path else tempfile.TemporaryDirectory(prefix="core-")
        self._writer = self._make(self._staging.name if self._staging else os.fspath(self._place))

    def on_epoch_end(self, *, step: int, scores: Scores, **details: Any) -> None:
        for tag, value in _flat(scores, "/"):
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()
        self._copy()

    def on_train_end(self, **details: Any) -> None:
        self._writer.close()
        self._copy()
        if self._staging is not None:
            self._staging.cleanup()

    def _copy(self) -> None:
        if self._staging is not None:
            for path in Path(self._staging.name).iterdir():
                (self._place / path.name).put(path)


class MLflow(Callback):
    """Parameters, metrics of every evaluation, and the model folder, in an MLflow run.

    Args:
        experiment: name of the MLflow experiment.
        tracking_uri: MLflow server or folder; by default MLflow's own setting.
    """

    def __init__(self, experiment: str = "core", tracking_uri: str | None = None) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise PluginError("MLflow is not installed", hint="pip install 'core[mlflow]'") from error
        self._mlflow = mlflow
        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        mlflow.set_experiment(experiment)

    def on_train_start(self, *, config: Config, output_directory: Location, **details: Any) -> None:
        from core.config import model_config

        self._model = output_directory / "model"
        self._mlflow.start_run(run_name=output_directory.name)
        self._mlflow.log_dict(model_config(config), "config.json")
        self._mlflow.log_params({f"trainer.{key}": value for key, value in model_config(config)["trainer"].items()})

    def on_epoch_end(self, *, step: int, scores: Scores, **details: Any) -> None:
        self._mlflow.log_metrics(dict(_flat(scores, ".")), step=step)

    def on_train_end(self, **details: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="core-") as folder:  # MLflow wants files, wherever the run's are
            for name in self._model.listdir():
                Path(folder, name).write_bytes((self._model / name).read_bytes())
            self._mlflow.log_artifacts(folder, "model")
        self._mlflow.end_run()


def _flat(scores: Scores, separator: str) -> list[tuple[str, float]]:
    return [
        (separator.join((split, feature, metric)), value)
        for split, features in scores.items()
        for feature, metrics in features.items()
        for metric, value in metrics.items()
    ]
