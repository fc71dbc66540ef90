"""The config as attrs classes: what every key is called, means, and defaults to."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from core.config.defaults import defaults_section
from core.config.fields import Selected, at_least_0, at_least_1, fraction, not_empty, optional, positive, setting
from core.features import INPUTS, OUTPUTS
from core.features.base import InputFeature, OutputFeature
from core.model.combiners import COMBINERS, Combiner, Concat
from core.specs import LoaderOptions
from core.training.optimizers import OPTIMIZERS, Adam, Optimizer


def _sums_to_one(_: Any, field: attrs.Attribute[Any], value: tuple[float, ...]) -> None:
    if len(value) != 3 or any(p < 0 for p in value) or abs(sum(value) - 1) > 1e-6:
        raise ValueError("needs three fractions (training, validation, test) of 0 or more that sum to 1")
    if value[0] == 0:
        raise ValueError("leaves no rows for training: the first fraction must be greater than 0")


@attrs.frozen(kw_only=True)
class Split:
    """How rows are divided into training, validation and test."""


@attrs.frozen(kw_only=True)
class RandomSplit(Split):
    """Exact sizes; which rows go where depends on the seed and the row number only."""

    probabilities: tuple[float, ...] = setting(
        (0.7, 0.1, 0.2), doc="Fractions of rows for training, validation and test.", check=_sums_to_one
    )


@attrs.frozen(kw_only=True)
class FixedSplit(Split):
    """A column says which split a row belongs to: 0, 1, 2 or training, validation, test."""

    column: str = setting("split", doc="The column that holds the split of each row.")


@attrs.frozen(kw_only=True)
class StratifySplit(Split):
    """Like random, in each class of a column apart, so that every split has the same mix."""

    column: str = setting(doc="The column whose classes are spread evenly.")
    probabilities: tuple[float, ...] = setting(
        (0.7, 0.1, 0.2), doc="Fractions of each class for training, validation and test.", check=_sums_to_one
    )


@attrs.frozen(kw_only=True)
class DatetimeSplit(Split):
    """The oldest rows train, the newest test."""

    column: str = setting(doc="The column of dates, times or timestamps to sort by.")
    probabilities: tuple[float, ...] = setting(
        (0.7, 0.1, 0.2),
        doc="Fractions of rows, from the oldest on, for training, validation and test.",
        check=_sums_to_one,
    )


@attrs.frozen(kw_only=True)
class HashSplit(Split):
    """The value of a column decides, so a row keeps its split when rows are added or reordered."""

    column: str = setting(doc="The column that is hashed, such as an identifier.")
    probabilities: tuple[float, ...] = setting(
        (0.7, 0.1, 0.2), doc="Expected fractions for training, validation and test.", check=_sums_to_one
    )


SPLITS = {
    "random": RandomSplit,
    "fixed": FixedSplit,
    "stratify": StratifySplit,
    "datetime": DatetimeSplit,
    "hash": HashSplit,
}


@attrs.frozen(kw_only=True)
class Preprocessing:
    """What happens to the dataset as a whole."""

    split: Split = setting(factory=RandomSplit, doc="How rows are divided.", choices=SPLITS, default_choice="random")
    sample_ratio: float = setting(
        1.0, doc="Use this fraction of the rows.", check=attrs.validators.and_(positive, fraction)
    )
    sample_size: int | None = setting(None, doc="Use this many rows.", check=optional(at_least_1))


@attrs.frozen(kw_only=True)
class GradientClipping:
    """Limits on gradients before an update."""

    clipglobalnorm: float | None = setting(
        0.5, doc="Largest norm of all gradients together; null for no limit.", check=optional(positive)
    )


@attrs.frozen(kw_only=True)
class LearningRateScheduler:
    """How the learning rate changes over a run."""

    decay: Literal["linear", "exponential", "cosine"] | None = setting(None, doc="Shape of the decay after warm-up.")
    decay_rate: float = setting(0.96, doc="Factor of exponential decay every `decay_steps`.", check=positive)
    decay_steps: int = setting(10000, doc="Steps over which `decay_rate` applies once.", check=at_least_1)
    staircase: bool = setting(False, doc="Apply exponential decay in whole steps.")
    warmup_fraction: float = setting(0.0, doc="Part of all steps in which the rate rises from 0.", check=fraction)
    warmup_evaluations: float = setting(0.0, doc="Evaluations in which the rate rises from 0.", check=at_least_0)
    t_0: int | None = setting(
        None, doc="Steps of the first cosine period; null for the whole run.", check=optional(at_least_1)
    )
    t_mult: int = setting(1, doc="Factor by which cosine periods grow.", check=at_least_1)
    eta_min: float = setting(0.0, doc="Lowest cosine rate, as a factor of the learning rate.", check=fraction)
    reduce_on_plateau: int = setting(
        0, doc="How often the rate may be cut when a metric stops improving.", check=at_least_0
    )
    reduce_on_plateau_patience: int = setting(10, doc="Evaluations without improvement before a cut.", check=at_least_1)
    reduce_on_plateau_rate: float = setting(
        0.1, doc="Factor of each cut.", check=attrs.validators.and_(positive, fraction)
    )
    reduce_eval_metric: str = setting("loss", doc="Metric that is watched for a plateau.")
    reduce_eval_split: Literal["training", "validation", "test"] = setting("training", doc="Split of that metric.")


@attrs.frozen(kw_only=True)
class Trainer:
    """What is learnt, for how long, in which steps. Where it runs is the business of `backend`."""

    type: Literal["trainer"] = setting("trainer", doc="Accepted for the sake of existing files.")
    epochs: int = setting(100, doc="Passes over the training rows.", check=at_least_1)
    train_steps: int | None = setting(None, doc="Optimiser steps; overrides `epochs`.", check=optional(at_least_1))
    batch_size: int | None = setting(
        None, doc="Rows of one optimiser step over all workers; 128 unless given.", check=optional(at_least_1)
    )
    batch_size_per_worker: int | None = setting(
        None, doc="Rows of one optimiser step on each worker, instead of `batch_size`.", check=optional(at_least_1)
    )
    effective_batch_size: int | None = setting(
        None, doc="Rows of one optimiser step, as batch size times accumulation.", check=optional(at_least_1)
    )
    gradient_accumulation_steps: int | None = setting(
        None, doc="Parts into which a worker cuts its share of a step.", check=optional(at_least_1)
    )
    max_rows_per_device: int | None = setting(
        None, doc="Most rows a device holds at once; accumulation follows.", check=optional(at_least_1)
    )
    eval_batch_size: int | None = setting(
        None, doc="Rows of an evaluation batch; null for the training batch.", check=optional(at_least_1)
    )
    learning_rate: float = setting(0.001, doc="Step size of the optimiser.", check=positive)
    learning_rate_scaling: Literal["constant", "linear", "sqrt"] = setting(
        "constant", doc="How the rate grows with the number of workers, where `batch_size_per_worker` is used."
    )
    learning_rate_scheduler: LearningRateScheduler = setting(factory=LearningRateScheduler, doc="How the rate changes.")
    optimizer: Optimizer = setting(factory=Adam, doc="The optimiser.", choices=OPTIMIZERS, default_choice="adam")
    gradient_clipping: GradientClipping | None = setting(
        factory=GradientClipping, doc="Limits on gradients; null for none."
    )
    early_stop: int = setting(
        5, doc="Evaluations without improvement before stopping; -1 never stops early.", check=attrs.validators.ge(-1)
    )
    validation_field: str | None = setting(
        None, doc="Output feature, or `combined`, whose metric chooses the best model."
    )
    validation_metric: str | None = setting(None, doc="Metric that chooses the best model; loss unless given.")
    steps_per_checkpoint: int = setting(
        0, doc="Steps between evaluations with a checkpoint; 0 for every epoch.", check=at_least_0
    )
    checkpoints_per_epoch: int = setting(
        0, doc="Evaluations with a checkpoint in an epoch, instead of `steps_per_checkpoint`.", check=at_least_0
    )
    evaluate_training_set: bool = setting(False, doc="Compute every metric on the training rows too, after each epoch.")
    should_shuffle: bool = setting(True, doc="Shuffle the training rows each epoch.")
    use_mixed_precision: bool = setting(False, doc="Compute in bfloat16 where it is safe, keeping float32 weights.")
    compile: bool = setting(False, doc="Compile the model with torch.compile.")
    exact: bool = setting(
        False,
        doc="Give the same weights, to the last bit, on any number of workers that divides `exact_shards`; slower.",
    )
    exact_shards: int = setting(
        4, doc="Parts into which `exact` cuts every batch, whatever the number of workers.", check=at_least_1
    )
    regularization_type: Literal["l1", "l2", "l1_l2"] | None = setting("l2", doc="Penalty on weights.")
    regularization_lambda: float = setting(0.0, doc="Strength of the penalty.", check=at_least_0)


@attrs.frozen(kw_only=True)
class BackendTrainer:
    """With which workers a model is trained."""

    strategy: Selected | None = setting(None, doc="How gradients travel between workers.", plugin="strategy")
    use_gpu: bool | None = setting(None, doc="Train on GPUs; null for where there are any.")
    num_workers: int | None = setting(
        None, doc="Worker processes; null for the number of GPUs, else 1.", check=optional(at_least_1)
    )
    resources_per_worker: dict[str, float] = setting(
        factory=dict, doc="Ray resources of each worker, custom ones included."
    )
    logdir: str | None = setting(None, doc="Where worker logs and events persist; null for the run's folder.")
    max_retries: int | None = setting(
        None,
        doc="Restarts of the workers after one dies; null for 3 under ray, 0 elsewhere.",
        check=optional(at_least_0),
    )


def _default_loader() -> Selected:
    return Selected(type="memory", options=LoaderOptions())


@attrs.frozen(kw_only=True)
class Backend:
    """Where and how a job runs. Changing it never changes what is learnt."""

    type: Literal["local", "ray", "deepspeed", "horovod"] | None = setting(
        None, doc="Where the job runs; null to find out."
    )
    cache_dir: str | None = setting(
        None, doc="Where processed data is kept; any fsspec URL. Null for beside the dataset."
    )
    cache_credentials: dict[str, Any] | str | None = setting(
        None, doc="fsspec options by protocol for the cache, or a JSON file of them.", secret=True
    )
    processor: Selected | None = setting(None, doc="Dataframe engine of preprocessing.", plugin="processor")
    trainer: BackendTrainer = setting(factory=BackendTrainer, doc="Workers of training.")
    loader: Selected = setting(
        factory=_default_loader, doc="How batches reach the workers.", plugin="loader", default_choice="memory"
    )


@attrs.frozen(kw_only=True)
class Config:
    """One model and how it is trained."""

    input_features: tuple[InputFeature, ...] = setting(
        doc="The columns the model reads.", choices=INPUTS, check=not_empty
    )
    output_features: tuple[OutputFeature, ...] = setting(
        doc="The columns the model predicts.", choices=OUTPUTS, check=not_empty
    )
    model_type: Literal["ecd"] = setting("ecd", doc="Encoders, combiner, decoders: the only kind there is.")
    combiner: Combiner = setting(
        factory=Concat, doc="How encoded inputs become one vector.", choices=COMBINERS, default_choice="concat"
    )
    preprocessing: Preprocessing = setting(factory=Preprocessing, doc="What happens to the dataset as a whole.")
    defaults: dict[str, Any] = setting(
        factory=dict, doc="Settings for all features of a type.", checked_as=defaults_section
    )
    trainer: Trainer = setting(factory=Trainer, doc="How the model is trained.")
    backend: Backend = setting(factory=Backend, doc="Where and how the job runs.", short="type")
