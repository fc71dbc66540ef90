from __future__ import annotations

from typing import Any

import pytest

from core.config import load

AGE = {"name": "Age", "type": "number"}
SEX = {"name": "Sex", "type": "category"}
SURVIVED = {"name": "Survived", "type": "binary"}


@pytest.mark.parametrize(
    ("sections", "path", "text"),
    [
        ({"input_features": [AGE, SEX, AGE]}, "input_features.2.name", "is used twice"),
        ({"output_features": [SURVIVED, SURVIVED]}, "output_features.1.name", "is used twice"),
        ({"output_features": [AGE]}, "output_features.Age.name", "is an input too"),
        (
            {"output_features": [{"name": "y", "column": "Age", "type": "number"}]},
            "output_features.y.name",
            "is an input too, so there is nothing to learn (found 'Age')",
        ),
        (
            {"input_features": [{"name": "x", "column": "Survived", "type": "number"}]},
            "output_features.Survived.name",
            "is an input too",
        ),
        (
            {"output_features": [{"name": "Age", "column": "other", "type": "number"}]},
            "output_features.Age.name",
            "is the name of an input feature too",
        ),
        (
            {"output_features": [{"name": "combined", "type": "number"}]},
            "output_features.combined.name",
            "`column: combined`",
        ),
        ({"input_features": [AGE | {"name": "__row__"}]}, "input_features.__row__.name", "`column: __row__`"),
        ({"input_features": [AGE | {"name": " "}]}, "input_features.0.name", "something to print"),
        ({"input_features": [AGE | {"name": "a\nb"}]}, "input_features.0.name", "nothing that cannot be printed"),
        ({"input_features": []}, "input_features", "is empty"),
        ({"output_features": []}, "output_features", "is empty"),
        ({"input_features": [AGE | {"tied": "Agee"}, SEX]}, "input_features.Age.tied", "did you mean 'Age'?"),
        ({"input_features": [AGE | {"tied": "Age"}]}, "input_features.Age.tied", "is the feature itself"),
        (
            {"input_features": [AGE | {"tied": "Sex"}, SEX]},
            "input_features.Age.tied",
            "is a category feature, and this is a number feature",
        ),
        (
            {"input_features": [AGE, AGE | {"name": "b", "tied": "Age"}, AGE | {"name": "c", "tied": "b"}]},
            "input_features.c.tied",
            "tie both to 'Age'",
        ),
        ({"preprocessing": {"sample_ratio": 0.5, "sample_size": 9}}, "preprocessing.sample_size", "`sample_ratio`"),
        (
            {"preprocessing": {"split": {"probabilities": [0.5, 0.2, 0.2]}}},
            "preprocessing.split.probabilities",
            "sum to 1",
        ),
        (
            {"preprocessing": {"split": {"probabilities": [0, 0.5, 0.5]}}},
            "preprocessing.split.probabilities",
            "leaves no rows for training",
        ),
    ],
)
def test_sections_that_describe_no_run(problems, sections: dict[str, Any], path: str, text: str) -> None:
    found = problems(**sections)

    assert list(found) == [path]
    assert text in str(found[path])


@pytest.mark.parametrize(
    "sections",
    [
        {
            "input_features": [
                AGE,
                AGE | {"name": "age again", "column": "Age", "preprocessing": {"normalization": None}},
            ]
        },
        {"input_features": [AGE, AGE | {"name": "b", "tied": "Age"}, AGE | {"name": "c", "tied": "Age"}]},
        {"input_features": [{"name": "a b/ü.*", "type": "number"}]},
        {"preprocessing": {"split": {"type": "stratify", "column": "Sex"}}},
        {"preprocessing": {"sample_ratio": 1.0, "sample_size": 9}},
        {"preprocessing": {"split": {"probabilities": [1, 0, 0]}}},
    ],
)
def test_sections_that_are_unusual_and_right(minimal, sections: dict[str, Any]) -> None:
    load(minimal | sections)


@pytest.mark.parametrize(
    ("trainer", "path", "text"),
    [
        ({"batch_size": 8, "batch_size_per_worker": 4}, "batch_size_per_worker", "`batch_size`"),
        ({"effective_batch_size": 8, "batch_size_per_worker": 4}, "batch_size_per_worker", "`effective_batch_size`"),
        ({"batch_size": 8, "effective_batch_size": 12}, "effective_batch_size", "a multiple of `batch_size`, 8"),
        (
            {"batch_size": 8, "effective_batch_size": 24, "gradient_accumulation_steps": 2},
            "effective_batch_size",
            "contradicts `batch_size` and `gradient_accumulation_steps` (found 24, expected 16, or 8",
        ),
        ({"gradient_accumulation_steps": 2, "max_rows_per_device": 4}, "max_rows_per_device", "give one of them"),
        ({"steps_per_checkpoint": 2, "checkpoints_per_epoch": 4}, "checkpoints_per_epoch", "give one of them"),
        ({"validation_field": "Survivd"}, "validation_field", "did you mean 'Survived'?"),
        ({"validation_field": "Age"}, "validation_field", "is no output feature"),
        ({"validation_metric": "roc_auk"}, "validation_metric", "did you mean 'roc_auc'?"),
        (
            {"validation_field": "combined", "validation_metric": "roc_auc"},
            "validation_metric",
            "set `validation_field` to the output feature",
        ),
        (
            {"learning_rate_scheduler": {"reduce_on_plateau": 1, "reduce_eval_metric": "accuracy"}},
            "learning_rate_scheduler.reduce_eval_metric",
            "is no metric of 'combined'",
        ),
    ],
)
def test_a_trainer_that_contradicts_itself(problems, trainer: dict[str, Any], path: str, text: str) -> None:
    found = problems(trainer=trainer)

    assert list(found) == [f"trainer.{path}"]
    assert text in str(found[f"trainer.{path}"])


@pytest.mark.parametrize(
    "trainer",
    [
        {"batch_size": 8, "effective_batch_size": 8},
        {"batch_size": 8, "effective_batch_size": 32},
        {"batch_size": 8, "effective_batch_size": 16, "gradient_accumulation_steps": 2},
        {"batch_size": 8, "effective_batch_size": 8, "gradient_accumulation_steps": 2},
        {"effective_batch_size": 8, "gradient_accumulation_steps": 2},
        {"batch_size_per_worker": 8, "learning_rate_scaling": "linear"},
        {"validation_field": "combined", "validation_metric": "loss"},
        {"validation_field": "Survived"},
        {"validation_metric": "roc_auc"},
        {
            "validation_field": "Survived",
            "learning_rate_scheduler": {"reduce_on_plateau": 1, "reduce_eval_metric": "accuracy"},
        },
        {"learning_rate_scheduler": {"reduce_eval_metric": "whatever is never watched"}},
    ],
)
def test_a_trainer_that_agrees_with_itself(minimal, trainer: dict[str, Any]) -> None:
    load(minimal | {"trainer": trainer})


def test_features_are_compared_even_where_others_are_unreadable(problems) -> None:
    found = problems(
        input_features=[AGE, AGE, {"type": "number"}, "Sex", {"name": "x", "type": "number", "tied": "y"}],
        output_features=[{"name": "x", "type": "nmber"}],
    )

    assert set(found) == {
        "input_features.1.name",
        "input_features.2.name",
        "input_features.3",
        "input_features.x.tied",
        "output_features.x.name",
        "output_features.x.type",
    }
