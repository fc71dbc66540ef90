"""What has to hold between keys: each alone may be fine, and together they describe no run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.config.sections import Preprocessing, Trainer
from core.config.wording import nearest
from core.config.yaml import Path
from core.errors import Problem
from core.features.base import OutputFeature

COMBINED = "combined"
ROW = "__row__"
"""`core.data.processed.ROW`, written out here because that module needs pyarrow."""

_TAKEN = {
    COMBINED: "is what the losses of all outputs together are called: name the feature otherwise",
    ROW: "is what the rows' numbers in processed data are called: name the feature otherwise",
}

Found = Iterator[tuple[Path, Problem]]


def feature_problems(data: Mapping[str, Any]) -> Found:
    """Of names, columns and ties, as written: features that are wrong in other ways count too."""
    inputs, outputs = (list(_written(data, key)) for key in ("input_features", "output_features"))
    for key, features in (("input_features", inputs), ("output_features", outputs)):
        for index, feature in features:
            name = feature["name"]
            if not name.strip() or not name.isprintable():
                message = "must have something to print, and nothing that cannot be printed"
                yield (key, index, "name"), Problem(message=message, found=name)
            elif name in _TAKEN:
                hint = f"keep the dataset's column with `column: {name}`"
                yield (key, index, "name"), Problem(message=_TAKEN[name], found=name, hint=hint)
    yield from _repeated_names(inputs, outputs)
    yield from _targets_among_inputs(inputs, outputs)
    yield from _ties(inputs)


def _written(data: Mapping[str, Any], key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    features = data.get(key)
    for index, feature in enumerate(features if isinstance(features, Sequence) else ()):
        if isinstance(feature, Mapping) and isinstance(feature.get("name"), str):
            yield index, feature


def _repeated_names(inputs: list[tuple[int, Any]], outputs: list[tuple[int, Any]]) -> Found:
    for key, features in (("input_features", inputs), ("output_features", outputs)):
        seen: set[str] = set()
        for index, feature in features:
            if feature["name"] in seen:
                hint = "give each its own name, and the same `column`" if key == "input_features" else ""
                yield (key, index, "name"), Problem(message="is used twice", found=feature["name"], hint=hint)
            seen.add(feature["name"])


def _targets_among_inputs(inputs: list[tuple[int, Any]], outputs: list[tuple[int, Any]]) -> Found:
    names = {feature["name"] for _, feature in inputs}
    columns = {feature.get("column") or feature["name"] for _, feature in inputs}
    for index, feature in outputs:
        column = feature.get("column") or feature["name"]
        if column in columns:
            message = "is an input too, so there is nothing to learn"
            yield ("output_features", index, "name"), Problem(message=message, found=column)
        elif feature["name"] in names:
            message = "is the name of an input feature too"
            yield ("output_features", index, "name"), Problem(message=message, found=feature["name"])


def _ties(inputs: list[tuple[int, Any]]) -> Found:
    by_name = {feature["name"]: feature for _, feature in inputs}
    for index, feature in inputs:
        tied = feature.get("tied")
        if not isinstance(tied, str):
            continue
        other, hint = by_name.get(tied), ""
        if tied == feature["name"]:
            message = "is the feature itself"
        elif other is None:
            message, hint = "is no input feature", nearest(tied, by_name)
        elif other.get("type") != feature.get("type"):
            message = f"is a {other.get('type')} feature, and this is a {feature.get('type')} feature"
        elif other.get("tied") is not None:
            message, hint = "is itself tied to another feature", f"tie both to {other['tied']!r}"
        else:
            continue
        yield ("input_features", index, "tied"), Problem(message=message, found=tied, hint=hint)


def preprocessing_problems(preprocessing: Preprocessing) -> Found:
    """Of the sample: a fraction or a number of rows."""
    if preprocessing.sample_size is not None and preprocessing.sample_ratio != 1:
        yield ("preprocessing", "sample_size"), Problem(message="cannot stand beside `sample_ratio`: give one of them")


def trainer_problems(trainer: Trainer) -> Found:
    """Of the rows of a step, the times of evaluation, and what exact mode excludes."""
    if trainer.batch_size_per_worker is not None:
        for key in ("batch_size", "effective_batch_size"):
            if getattr(trainer, key) is not None:
                message = f"cannot stand beside `{key}`: one counts rows of each worker, the other of all"
                yield ("trainer", "batch_size_per_worker"), Problem(message=message)
    elif trainer.effective_batch_size is not None and trainer.batch_size is not None:
        yield from _effective_batch_size(trainer.effective_batch_size, trainer.batch_size, trainer)
    if trainer.gradient_accumulation_steps is not None and trainer.max_rows_per_device is not None:
        message = "cannot stand beside `gradient_accumulation_steps`, which would follow from it: give one of them"
        yield ("trainer", "max_rows_per_device"), Problem(message=message)
    if trainer.steps_per_checkpoint and trainer.checkpoints_per_epoch:
        message = "cannot stand beside `steps_per_checkpoint`: give one of them"
        yield ("trainer", "checkpoints_per_epoch"), Problem(message=message)
    if trainer.exact and trainer.batch_size_per_worker is not None:
        message = "cannot stand beside `batch_size_per_worker`: a step would have more rows on more workers"
        yield ("trainer", "exact"), Problem(message=message, hint="give `batch_size`")
    if trainer.exact and trainer.compile:
        message = "cannot stand beside `compile`: which kernels it makes depends on the shapes a worker sees first"
        yield ("trainer", "exact"), Problem(message=message)


def _effective_batch_size(effective: int, batch: int, trainer: Trainer) -> Found:
    steps = trainer.gradient_accumulation_steps
    if steps is None:
        fits, expected = effective % batch == 0, f"a multiple of `batch_size`, {batch}"
    else:
        fits = effective in (batch, batch * steps)
        expected = f"{batch * steps}, or {batch} where `batch_size` counts all parts" if steps > 1 else f"{batch}"
    if not fits:
        message = "contradicts `batch_size`" + (" and `gradient_accumulation_steps`" if steps else "")
        yield ("trainer", "effective_batch_size"), Problem(message=message, found=effective, expected=expected)


def metric_problems(trainer: Trainer, outputs: Sequence[OutputFeature]) -> Found:
    """Of the metrics that choose the best model and cut the learning rate."""
    metrics = {COMBINED: {"loss"}} | {feature.name: set(feature.metric_goals) for feature in outputs}
    field, metric = trainer.validation_field, trainer.validation_metric
    if field is not None and field not in metrics:
        expected = " or ".join(metrics)
        hint = nearest(field, metrics)
        yield (
            ("trainer", "validation_field"),
            Problem(message="is no output feature", found=field, expected=expected, hint=hint),
        )
        return
    chosen = field or (COMBINED if metric in (None, "loss") else outputs[0].name)
    yield from _metric(("trainer", "validation_metric"), metric, chosen, metrics)
    scheduler = trainer.learning_rate_scheduler
    if scheduler.reduce_on_plateau:
        path = ("trainer", "learning_rate_scheduler", "reduce_eval_metric")
        yield from _metric(path, scheduler.reduce_eval_metric, field or COMBINED, metrics)


def _metric(path: Path, metric: str | None, field: str, metrics: Mapping[str, set[str]]) -> Found:
    if metric is None or metric in metrics[field]:
        return
    hint = nearest(metric, metrics[field])
    if field == COMBINED and any(metric in of for of in metrics.values()):
        hint = "set `validation_field` to the output feature whose metric it is"
    message = f"is no metric of {field!r}"
    expected = ", ".join(sorted(metrics[field]))
    yield path, Problem(message=message, found=metric, expected=expected, hint=hint)
