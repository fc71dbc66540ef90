from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from core.errors import ConfigError, DataError
from core.features.base import Unparsable
from core.features.category import (
    CategoryInput,
    CategoryOutput,
    CategoryOutputPreprocessing,
    CategoryPreprocessing,
    OneHot,
    SoftmaxCrossEntropy,
)

METADATA = {"vocabulary": ["a", "b", "c"], "fill_value": "<UNK>"}


def _input(**preprocessing):
    return CategoryInput(name="x", preprocessing=CategoryPreprocessing(**preprocessing))


def _output(class_weights=None, **preprocessing):
    return CategoryOutput(
        name="x",
        preprocessing=CategoryOutputPreprocessing(**preprocessing),
        loss=SoftmaxCrossEntropy(class_weights=class_weights),
    )


@pytest.mark.parametrize(
    ("values", "kind", "texts"),
    [
        (["a", " b ", "", "  ", None], pa.string(), ["a", "b", None, None, None]),
        (["1", "1.0", "1.5", "-2.0", "v1.0"], pa.string(), ["1", "1", "1.5", "-2", "v1.0"]),
        ([1, None], pa.int64(), ["1", None]),
        ([1.0, 1.5, -2.0, math.nan, None], pa.float64(), ["1", "1.5", "-2", None, None]),
        ([0.1], pa.float32(), ["0.1"]),
        ([True, False, None], pa.bool_(), ["True", "False", None]),
        ([b"a"], pa.binary(), ["a"]),
        ([None], pa.null(), [None]),
    ],
)
def test_a_category_has_one_spelling_in_every_format(column, values, kind, texts):
    parsed = _input().parse(column(values, kind))

    assert parsed.type == pa.string()
    assert parsed.to_pylist() == texts


@pytest.mark.parametrize(("values", "kind"), [([None, [1]], pa.list_(pa.int64())), ([None, b"\xff"], pa.binary())])
def test_what_is_no_category_is_refused(column, values, kind):
    with pytest.raises(Unparsable) as error:
        _input().parse(column(values, kind))
    assert error.value.row == 1


def test_frequent_categories_come_first_after_unknown(learn, encode):
    feature = _input(most_common=2)
    metadata = learn(feature, ["b", "c", "c", "a", "b", "a", "z", None])

    assert metadata["vocabulary"] == ["<UNK>", "a", "b"]
    assert encode(feature, ["a", "b", "c", "unseen", None, "<UNK>"], metadata) == [1, 2, 0, 0, 0, 0]


def test_case_can_be_ignored(learn):
    assert learn(_input(lowercase=True), ["A", "a", "É"])["vocabulary"] == ["<UNK>", "a", "é"]


@pytest.mark.parametrize(
    ("preprocessing", "filled"),
    [
        ({"fill_value": "none"}, "none"),
        ({"missing_value_strategy": "fill_with_mode"}, "a"),
        ({}, "<UNK>"),
    ],
)
def test_missing_categories_are_filled(learn, encode, preprocessing, filled):
    feature = _input(**preprocessing)
    metadata = learn(feature, ["a", "a", "b", None])

    [code] = encode(feature, [None], metadata)

    assert metadata["vocabulary"][code] == filled


def test_an_output_keeps_every_class_and_knows_no_other(learn, encode):
    feature = _output()
    metadata = learn(feature, ["b", "a", "b", "c"])

    assert feature.summarises == "all"
    assert metadata["vocabulary"] == ["b", "a", "c"]
    assert encode(feature, ["a", "b", "c"], metadata) == [1, 0, 2]
    with pytest.raises(DataError) as error:
        encode(feature, ["a", "d"], metadata)
    assert error.value.found == "d"
    assert error.value.expected == "one of 'b', 'a', 'c'"


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        (_output(), ["a", "a", None], "has one class only"),
        (_output(), [None, ""], "has no values"),
        (_input(), [None], "has no values"),
    ],
)
def test_columns_without_information_are_refused(learn, feature, values, message):
    if feature.preprocessing.missing_value_strategy == "drop_row":
        values = [value for value in values if value]
    with pytest.raises(DataError, match=message):
        learn(feature, values)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.sampled_from(["a", "b", "c", "1", "1.0", None]), min_size=1, max_size=30), data=st.data())
def test_partitions_cannot_change_anything(learn, encode, values, data):
    feature = _input(most_common=3)
    values = ["a", *values]
    cuts = data.draw(st.lists(st.integers(0, len(values)), max_size=4))
    cut = data.draw(st.integers(0, len(values)))

    metadata = learn(feature, values, cuts)

    assert metadata == learn(feature, values)
    assert encode(feature, values[:cut], metadata) + encode(feature, values[cut:], metadata) == encode(
        feature, values, metadata
    )


@pytest.mark.parametrize("weights", [(1.0, 2.0, 0.5), {"c": 0.5, "a": 1.0, "b": 2.0}])
def test_class_weights_multiply_the_losses_of_their_rows(weights):
    outputs = torch.randn(3, 3, requires_grad=True, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2], dtype=torch.int32)

    plain = _output().row_losses(outputs, targets, METADATA)
    weighted = _output(weights).row_losses(outputs, targets, METADATA)
    weighted.sum().backward()

    assert weighted.dtype == torch.float32
    assert torch.allclose(weighted, plain * torch.tensor([1.0, 2.0, 0.5]))
    assert outputs.grad.abs().sum() > 0


@pytest.mark.parametrize("weights", [(1.0, 2.0), {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}])
def test_class_weights_that_fit_no_classes_are_refused_when_the_network_is_built(weights):
    with pytest.raises(ConfigError) as error:
        _output(weights).build_decoder(METADATA, 4)
    assert error.value.path == "output_features.x.loss.class_weights"


def test_metrics_agree_with_the_reference():
    random = np.random.default_rng(0)
    metadata = {"vocabulary": list("abcde"), "fill_value": ""}
    targets = random.integers(0, 4, 400)  # class e does not occur
    outputs = torch.from_numpy(random.normal(0, 1, (400, 5)) + 1.5 * np.eye(5)[targets]).float()
    probabilities = outputs.softmax(1).numpy()

    result = _output().evaluate(outputs, torch.from_numpy(targets).int(), metadata)

    assert set(result) == set(CategoryOutput.metric_goals)
    areas = [reference.roc_auc_score(targets == index, probabilities[:, index]) for index in range(4)]
    assert result == pytest.approx(
        {
            "loss": reference.log_loss(targets, probabilities, labels=range(5)),
            "accuracy": reference.accuracy_score(targets, probabilities.argmax(1)),
            "accuracy_macro": np.mean(
                reference.recall_score(targets, probabilities.argmax(1), labels=range(4), average=None)
            ),
            "hits_at_k": reference.top_k_accuracy_score(targets, probabilities, k=3, labels=range(5)),
            "roc_auc": np.mean(areas),
        },
        abs=1e-5,
    )


@pytest.mark.parametrize("targets", [[], [1, 1]])
def test_metrics_that_are_undefined_are_nan(targets):
    result = _output().evaluate(torch.zeros(len(targets), 3), torch.tensor(targets, dtype=torch.int32), METADATA)

    assert set(result) == set(CategoryOutput.metric_goals)
    assert math.isnan(result["roc_auc"])
    assert math.isnan(result["accuracy"]) == (not targets)


def test_predictions_name_the_class_and_every_probability():
    outputs = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 3.0]])

    predicted = _output().predictions(outputs, METADATA)

    assert list(predicted) == ["predictions", "probability", "probabilities_a", "probabilities_b", "probabilities_c"]
    assert predicted["predictions"].to_pylist() == ["a", "c"]
    assert predicted["probability"].type == pa.float32()
    assert predicted["probability"].to_pylist() == pytest.approx(outputs.softmax(1).amax(1).tolist())
    assert sum(predicted[f"probabilities_{name}"].to_numpy() for name in "abc") == pytest.approx([1, 1])


def test_encoders_take_codes_of_32_bits():
    codes = torch.tensor([0, 2], dtype=torch.int32)

    embedded = _input().build_encoder(METADATA)(codes)
    one_hot = CategoryInput(name="x", encoder=OneHot()).build_encoder(METADATA)(codes)

    assert embedded.shape == (2, 3)  # no more dimensions than categories
    assert one_hot.tolist() == [[1, 0, 0], [0, 0, 1]]
