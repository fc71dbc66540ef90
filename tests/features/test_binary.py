from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from core.errors import DataError
from core.features.binary import (
    BinaryInput,
    BinaryOutput,
    BinaryOutputPreprocessing,
    BinaryPreprocessing,
    BinaryWeightedCrossEntropy,
)

METADATA = {"bool2str": ["no", "yes"], "fill_value": False}


def _input(**preprocessing):
    return BinaryInput(name="x", preprocessing=BinaryPreprocessing(**preprocessing))


def _output(**preprocessing):
    return BinaryOutput(name="x", preprocessing=BinaryOutputPreprocessing(**preprocessing))


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["0", "1", "0"], ["0", "1"]),
        (["1.0", "0.0"], ["0", "1"]),
        (["True", "False"], ["False", "True"]),
        (["yes", "no", None], ["no", "yes"]),
        (["t", "f"], ["f", "t"]),
        (["ON", "off"], ["off", "ON"]),
        (["Y", "y", "y", "n"], ["n", "y"]),
        (["yes", "nope"], ["nope", "yes"]),
        (["no", "maybe"], ["no", "maybe"]),
        (["2", "1"], ["1", "2"]),
        (["10", "9"], ["9", "10"]),
        (["-1", "1"], ["-1", "1"]),
        (["male", "female"], ["female", "male"]),
    ],
)
def test_which_value_is_true_does_not_depend_on_the_order_of_rows(learn, values, labels):
    for feature in (_input(), _output()):
        assert learn(feature, values)["bool2str"] == labels
        assert learn(feature, values[::-1])["bool2str"] == labels


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["1", "1"], ["0", "1"]),
        (["no"], ["no", "yes"]),
        (["True"], ["False", "True"]),
        (["F"], ["F", "T"]),
        (["abc"], ["abc", "<UNK>"]),
    ],
)
def test_an_input_may_be_constant(learn, encode, values, labels):
    metadata = learn(_input(), values)

    assert metadata["bool2str"] == labels
    assert encode(_input(), values, metadata) == [values[0] == labels[1]] * len(values)


def test_the_true_label_can_be_named(learn, encode):
    feature = _input(fallback_true_label="female")
    metadata = learn(feature, ["male", "female"])

    assert metadata["bool2str"] == ["male", "female"]
    assert encode(feature, ["female", "male"], metadata) == [True, False]
    with pytest.raises(DataError) as error:
        learn(feature, ["a", "b"])
    assert error.value.found == "female"
    assert error.value.expected == "'a' or 'b'"


@pytest.mark.parametrize(
    ("values", "kind", "encoded"),
    [
        ([True, False, None], pa.bool_(), [True, False, False]),
        ([1, 0], pa.int64(), [True, False]),
        ([1.0, 0.0, math.nan], pa.float32(), [True, False, False]),
        (["TRUE", "F", "y", " off ", "0"], pa.string(), [True, False, True, False, False]),
    ],
)
def test_plain_truth_values_are_read_in_any_spelling(encode, values, kind, encoded):
    assert encode(_input(), values, METADATA, kind) == encoded


@pytest.mark.parametrize(
    ("strategy", "filled"), [("fill_with_false", False), ("fill_with_mode", True), ("fill_with_const", True)]
)
def test_missing_values_are_filled(learn, encode, strategy, filled):
    feature = _input(missing_value_strategy=strategy, fill_value=True)

    assert encode(feature, [None, "b"], learn(feature, ["a", "b", "b", None])) == [filled, True]


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        (_output(), ["a", "b", "c"], r"more than two values \(found \['a', 'b', 'c'\]"),
        (_input(), ["yes", "no", "maybe"], "more than two values"),
        (_output(), ["yes", "Yes", "y"], "has one class only"),
        (_output(), ["a"], "has one class only"),
        (_input(), [None, ""], "has no values"),
    ],
)
def test_columns_that_are_not_binary_are_refused(learn, feature, values, message):
    with pytest.raises(DataError, match=message):
        learn(feature, values)


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b"]])
def test_a_value_never_seen_is_refused(encode, labels):
    with pytest.raises(DataError) as error:
        encode(_input(), [labels[0], None, "c"], {"bool2str": labels, "fill_value": False})
    assert error.value.found == "c"


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.sampled_from(["yes", "no", "Yes", "TRUE", "1", None]), min_size=1, max_size=20).filter(any),
    data=st.data(),
)
def test_partitions_cannot_change_metadata(learn, values, data):
    feature = _input(missing_value_strategy="fill_with_mode")
    cuts = data.draw(st.lists(st.integers(0, len(values)), max_size=4))

    assert learn(feature, values, cuts) == learn(feature, values)


def test_a_column_of_many_values_is_refused_alike_however_it_is_cut(learn):
    values = [f"v{number:04}" for number in range(1000)]

    for cuts in ([], [300, 700]):
        with pytest.raises(DataError) as error:
            learn(_input(), values[::-1], cuts)
        assert error.value.found == values[:10]


@pytest.mark.parametrize("weight", [None, 3.0])
def test_row_losses_weigh_true_rows(weight):
    feature = BinaryOutput(name="x", loss=BinaryWeightedCrossEntropy(positive_class_weight=weight))
    outputs = torch.zeros(2, requires_grad=True)

    losses = feature.row_losses(outputs, torch.tensor([True, False]), METADATA)
    losses.sum().backward()

    assert losses.tolist() == pytest.approx([math.log(2) * (weight or 1), math.log(2)])
    assert outputs.grad.tolist() == pytest.approx([-0.5 * (weight or 1), 0.5])


@pytest.mark.parametrize("threshold", [0.5, 0.7])
def test_metrics_agree_with_the_reference(threshold):
    random = np.random.default_rng(0)
    targets = random.random(500) < 0.4
    outputs = torch.from_numpy(random.normal(0, 1, 500) + targets).float()
    probabilities = outputs.sigmoid().numpy()
    predicted = probabilities >= threshold

    result = BinaryOutput(name="x", threshold=threshold).evaluate(outputs, torch.from_numpy(targets), METADATA)

    assert set(result) == set(BinaryOutput.metric_goals)
    assert result == pytest.approx(
        {
            "loss": reference.log_loss(targets, probabilities),
            "accuracy": reference.accuracy_score(targets, predicted),
            "roc_auc": reference.roc_auc_score(targets, probabilities),
            "precision": reference.precision_score(targets, predicted),
            "recall": reference.recall_score(targets, predicted),
            "specificity": reference.recall_score(~targets, ~predicted),
        },
        abs=1e-6,
    )


@pytest.mark.parametrize("targets", [[], [True, True]])
def test_metrics_that_are_undefined_are_nan(targets):
    result = _output().evaluate(torch.zeros(len(targets)), torch.tensor(targets, dtype=torch.bool), METADATA)

    assert set(result) == set(BinaryOutput.metric_goals)
    assert math.isnan(result["roc_auc"])
    assert math.isnan(result["loss"]) == (not targets)


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        (["no", "yes"], ["no", "yes"]),
        (["0", "1"], [0, 1]),
        (["01", "1"], ["01", "1"]),
        (["False", "True"], [False, True]),
    ],
)
def test_predictions_speak_the_labels_of_the_dataset(labels, predictions):
    outputs = torch.tensor([-1.0, 2.0])

    predicted = _output().predictions(outputs, {"bool2str": labels, "fill_value": False})

    true = outputs.sigmoid().numpy()
    assert list(predicted) == ["predictions", "probability", *(f"probabilities_{label}" for label in labels)]
    assert predicted["predictions"].to_pylist() == predictions
    assert predicted["probability"].to_pylist() == pytest.approx([1 - true[0], true[1]])
    assert predicted[f"probabilities_{labels[0]}"].to_pylist() == pytest.approx(1 - true)
    assert predicted[f"probabilities_{labels[1]}"].to_pylist() == pytest.approx(true)
