"""The Python API. Each call is what the command of the same name does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from core.backends.placement import place
from core.callbacks import Callback, Reporter
from core.config import load, loads
from core.config.sections import Config
from core.errors import ConfigError
from core.jobs import DEFAULT_SEED, Run, TrainRequest, evaluate_run, preprocess_for, train
from core.run import RunFolder, open_model, place_of
from core.storage import Location

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from core.data import Processed
    from core.prediction import Request

ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | Config
BackendSource = str | Mapping[str, Any] | None


class Model:
    """A config, and once trained or loaded, its weights.

    Args:
        config: a YAML file's path, YAML text (with a line break), a mapping, or a `Config`.
        backend: a name, a mapping or a file; merged over the config's `backend`, key by key.
        overrides: ``trainer.epochs=3``, as `--set` takes them.
        callbacks: see `core.Callback`.
    """

    def __init__(
        self,
        config: ConfigSource,
        *,
        backend: BackendSource = None,
        overrides: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config = read_config(config, backend=backend, overrides=overrides)
        self.callbacks = tuple(callbacks)
        self.model_path: Location | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, backend: BackendSource = None) -> Model:
        """A trained model, wherever and with whatever it was trained.

        Raises:
            ModelError: the folder is missing or damaged.
        """
        saved = open_model(path)
        model = cls(saved.config, backend=backend)
        model.model_path = saved.path
        return model

    def train(
        self,
        dataset: Any = None,
        *,
        training_set: Any = None,
        validation_set: Any = None,
        test_set: Any = None,
        output_directory: str | os.PathLike[str] = "results",
        experiment_name: str = "experiment",
        model_name: str = "run",
        model_resume_path: str | os.PathLike[str] | None = None,
        model_load_path: str | os.PathLike[str] | None = None,
        random_seed: int = DEFAULT_SEED,
        skip_save_progress: bool = False,
        skip_save_training_statistics: bool = False,
        skip_save_processed_input: bool = False,
    ) -> Run:
        """Preprocess, train and save; see `core train`.

        Args:
            dataset: a path or URL, a list or glob of them, or a frame in memory; split as the config says.
            training_set, validation_set, test_set: instead of `dataset`, one for each split.
            model_resume_path: a run's folder, to continue it.
            model_load_path: a model folder whose weights to start from.

        Raises:
            UserError: something given is wrong. Nothing was trained.
            TrainingError: training could not finish; it can be continued with `model_resume_path`.
        """
        from core.data import Datasets

        given = Datasets(dataset=dataset, training_set=training_set, validation_set=validation_set, test_set=test_set)
        request = TrainRequest(
            config=self.config,
            datasets=given,
            output_directory=place_of(output_directory),
            experiment_name=experiment_name,
            model_name=model_name,
            resume=None if model_resume_path is None else RunFolder.existing(model_resume_path),
            initial_weights=None if model_load_path is None else open_model(model_load_path).path,
            seed=random_seed,
            save_progress=not skip_save_progress,
            save_statistics=not skip_save_training_statistics,
            save_processed=not skip_save_processed_input,
        )
        run = train(request, self.callbacks)
        self.model_path = run.model_path
        return run

    def evaluate(
        self,
        dataset: Any,
        *,
        split: str = "full",
        batch_size: int | None = None,
    ) -> tuple[dict[str, dict[str, float]], pd.DataFrame]:
        """Metrics of the model on a dataset, and its predictions, one row a row.

        Args:
            split: `full`, or the part of `dataset` that the config and seed put into that split.
        """
        from core.prediction import evaluate

        request = self._request(dataset, split=split, batch_size=batch_size, numbered=True)
        result = evaluate(request, Reporter(self.callbacks))
        assert result.predictions is not None
        return result.metrics, _indexed(result.predictions, dataset)

    @overload
    def predict(
        self,
        dataset: Any,
        *,
        split: str = ...,
        batch_size: int | None = ...,
        index_column: str | None = ...,
        output: None = ...,
    ) -> pd.DataFrame: ...

    @overload
    def predict(
        self,
        dataset: Any,
        *,
        split: str = ...,
        batch_size: int | None = ...,
        index_column: str | None = ...,
        output: str | os.PathLike[str],
    ) -> Location: ...

    def predict(
        self,
        dataset: Any,
        *,
        split: str = "full",
        batch_size: int | None = None,
        index_column: str | None = None,
        output: str | os.PathLike[str] | None = None,
    ) -> pd.DataFrame | Location:
        """Predictions in the order of the rows: ``<feature>_predictions``, ``<feature>_probability``, ….

        Their index is that of `dataset`, where it is a pandas DataFrame, else the rows' numbers from 0.

        Args:
            index_column: a column of `dataset` to carry over.
            output: write them there, as `core predict --output` does, and return where they are: datasets of any
                size in bounded memory, and a call that was stopped goes on when it is made again.
        """
        from core.prediction import predict, predict_to, target_of

        request = self._request(
            dataset, split=split, batch_size=batch_size, index_column=index_column, numbered=output is None
        )
        reporter = Reporter(self.callbacks)
        if output is None:
            return _indexed(predict(request, reporter), dataset)
        target = target_of(output)
        predict_to(request, target, reporter)
        return target.place

    def experiment(self, dataset: Any = None, **settings: Any) -> tuple[Run, dict[str, dict[str, float]], pd.DataFrame]:
        """`train`, with its arguments, then `evaluate` on the test split.

        Raises:
            DataError: there are no test rows.
        """
        run = self.train(dataset, **settings)
        result = evaluate_run(run, backend=self.config.backend, callbacks=self.callbacks)
        assert result.predictions is not None
        return run, result.metrics, result.predictions.to_pandas()

    def _request(self, dataset: Any, **settings: Any) -> Request:
        from core.prediction import Request

        return Request(saved=open_model(self._trained()), dataset=dataset, backend=self.config.backend, **settings)

    def _trained(self) -> Location:
        if self.model_path is None:
            raise ConfigError(
                "this model has no weights yet", hint="Call train, or take a trained one: Model.load(path)."
            )
        return self.model_path


def _indexed(predictions: pa.Table, dataset: Any) -> pd.DataFrame:
    """The predictions under the index of the rows they are of."""
    import pandas as pd

    from core.prediction import ROW

    frame = predictions.to_pandas()
    rows = frame.pop(ROW).to_numpy()
    frame.index = dataset.index[rows] if isinstance(dataset, pd.DataFrame) else pd.Index(rows)
    return frame


def read_config(config: ConfigSource, *, backend: BackendSource = None, overrides: Sequence[str] = ()) -> Config:
    """The checked config."""
    if isinstance(config, Config):
        if backend is None and not overrides:
            return config
        from core.config import resolved

        config = resolved(config)
    if isinstance(config, str) and "\n" in config:
        return loads(config, backend=backend, overrides=overrides)
    return load(config, backend=backend, overrides=overrides)


def preprocess(
    config: ConfigSource,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    backend: BackendSource = None,
    overrides: Sequence[str] = (),
    random_seed: int = DEFAULT_SEED,
    callbacks: Sequence[Callback] = (),
) -> Processed:
    """Fill the cache, or find it filled; see `core preprocess`."""
    from core.data import Datasets

    checked = read_config(config, backend=backend, overrides=overrides)
    datasets = Datasets(dataset=dataset, training_set=training_set, validation_set=validation_set, test_set=test_set)
    return preprocess_for(checked, datasets, random_seed, place(checked.backend), Reporter(callbacks))
