from __future__ import annotations

import decimal
import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from core.errors import DataError
from core.features.base import Unparsable
from core.features.number import (
    Huber,
    MeanAbsoluteError,
    NumberInput,
    NumberOutput,
    NumberOutputPreprocessing,
    NumberPreprocessing,
)


def _input(**preprocessing):
    return NumberInput(name="x", preprocessing=NumberPreprocessing(**preprocessing))


def _output(normalization="zscore", **settings_):
    return NumberOutput(name="x", preprocessing=NumberOutputPreprocessing(normalization=normalization), **settings_)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0),
        (" 1.5\t", 1.5),
        ("+2", 2.0),
        ("-0.25", -0.25),
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        (".5", 0.5),
        ("", None),
        ("  ", None),
        ("nan", None),
        ("NaN", None),
        (None, None),
    ],
)
def test_text_is_read_as_a_number(column, text, number):
    assert _input().parse(column([text, "7"])).to_pylist() == [number, 7.0]


@pytest.mark.parametrize(
    ("values", "kind", "numbers"),
    [
        ([1, None, -3], pa.int8(), [1.0, None, -3.0]),
        ([2**63], pa.uint64(), [2.0**63]),
        ([1.5, math.nan, None], pa.float32(), [1.5, None, None]),
        ([decimal.Decimal("1.25"), None], pa.decimal128(10, 2), [1.25, None]),
        ([True, False, None], pa.bool_(), [1.0, 0.0, None]),
        (["1", " 2 "], pa.large_string(), [1.0, 2.0]),
        ([None, None], pa.null(), [None, None]),
    ],
)
def test_typed_columns_are_read(column, values, kind, numbers):
    parsed = _input().parse(column(values, kind))

    assert parsed.type == pa.float64()
    assert parsed.to_pylist() == numbers


def test_a_dictionary_column_in_chunks_is_read():
    chunks = [pa.array(["1", "2"]).dictionary_encode(), pa.array(["2", None]).dictionary_encode()]

    assert _input().parse(pa.chunked_array(chunks)).to_pylist() == [1.0, 2.0, 2.0, None]


@pytest.mark.parametrize("text", ["abc", "1,000", "1_0", "0x10", "inf", "-Infinity", "1e999", "$3"])
@pytest.mark.parametrize("row", [0, 3])
def test_what_is_no_finite_number_is_named_with_its_row(column, text, row):
    values = [" 1", "2", "", "4", "5"]
    values[row] = text

    with pytest.raises(Unparsable) as error:
        _input().parse(column(values))

    assert error.value.row == row
    assert error.value.found == text


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.date32()])
def test_a_column_of_another_kind_is_refused(column, kind):
    with pytest.raises(Unparsable, match="a number"):
        _input().parse(column([None], kind))


@pytest.mark.parametrize(
    ("normalization", "encoded"),
    [
        (None, [0, 1, 3, 8]),
        ("minmax", [0, 0.125, 0.375, 1]),
        ("log1p", [0, math.log(2), math.log(4), math.log(9)]),
        ("iqr", [(v - 2) / (4.25 - 0.75) for v in (0, 1, 3, 8)]),
        ("zscore", [(v - 3) / math.sqrt(9.5) for v in (0, 1, 3, 8)]),
    ],
)
def test_values_are_scaled_and_scaled_back(learn, encode, normalization, encoded):
    values = ["0", "1", "3", "8"]
    feature = _output(normalization)
    metadata = learn(feature, values)

    result = encode(feature, values, metadata)

    assert result == pytest.approx(encoded, abs=1e-6)
    predicted = feature.predictions(torch.tensor(result), metadata)["predictions"]
    assert predicted.type == pa.float64()
    assert predicted.to_pylist() == pytest.approx([0, 1, 3, 8], abs=1e-5)


@pytest.mark.parametrize("normalization", ["zscore", "minmax", "iqr"])
def test_a_constant_column_becomes_zeros(learn, encode, normalization):
    feature = _input(normalization=normalization)

    assert encode(feature, ["0.1", "0.1"], learn(feature, ["0.1", "0.1", "0.1"])) == [0, 0]


@pytest.mark.parametrize(
    ("strategy", "filled"),
    [("fill_with_const", 9), ("fill_with_mean", 3), ("fill_with_mode", 1), ("bfill", 9), ("drop_row", 9)],
)
def test_missing_values_are_filled(learn, encode, strategy, filled):
    feature = _input(missing_value_strategy=strategy, fill_value=9, normalization=None)
    metadata = learn(feature, ["1", "1", "7", None])

    assert encode(feature, [None, "2"], metadata) == [filled, 2]


def test_a_column_without_values_is_refused(learn):
    with pytest.raises(DataError, match="has no values"):
        learn(_input(), [None, "", "nan"])


def test_log1p_refuses_values_it_is_not_defined_for(learn, encode):
    feature = _input(normalization="log1p")

    with pytest.raises(DataError, match="log1p"):
        learn(feature, ["1", "-1.5"])
    with pytest.raises(DataError, match="above -1"):
        encode(feature, ["-2"], learn(feature, ["1"]))


def test_a_value_too_large_for_float32_is_refused(learn, encode):
    feature = _input(normalization=None)

    with pytest.raises(DataError) as error:
        encode(feature, ["1", "1e300"], learn(feature, ["1"]))
    assert error.value.found == 1e300


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.floats(-1e12, 1e12) | st.just(-0.0) | st.none(), min_size=1, max_size=30).filter(any),
    data=st.data(),
    normalization=st.sampled_from(["zscore", "minmax", "iqr", None]),
)
def test_partitions_cannot_change_metadata(learn, values, data, normalization):
    feature = _input(normalization=normalization, missing_value_strategy="fill_with_mode")
    texts = [None if value is None else repr(value) for value in values]
    cuts = data.draw(st.lists(st.integers(0, len(values)), max_size=4))

    assert repr(learn(feature, texts, cuts)) == repr(learn(feature, texts))


def test_a_summary_can_be_sent_to_another_process(column):
    feature = _input(normalization="iqr")
    summary = feature.summary()
    summary.update(feature.parse(column(["1", "2", None])))

    assert pickle.loads(pickle.dumps(summary)).finish() == summary.finish()


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(None, [0.0, 9.0]), (MeanAbsoluteError(), [0.0, 3.0]), (Huber(delta=2.0), [0.0, 4.0])],
)
def test_row_losses_and_their_gradient(loss, expected):
    feature = _output() if loss is None else _output(loss=loss)
    outputs = torch.tensor([1.0, 4.0], dtype=torch.bfloat16, requires_grad=True)

    losses = feature.row_losses(outputs, torch.tensor([1.0, 1.0]), {})
    losses.sum().backward()

    assert losses.dtype == torch.float32
    assert losses.tolist() == pytest.approx(expected)
    assert outputs.grad[0] == 0
    assert outputs.grad[1] > 0


@pytest.mark.parametrize("normalization", ["zscore", "minmax", "log1p", None])
def test_metrics_are_those_of_the_dataset_units(learn, encode, normalization):
    random = np.random.default_rng(0)
    actual = random.gamma(2, 100, 500).astype(np.float32).astype(float)
    feature = _output(normalization)
    metadata = learn(feature, list(map(repr, actual.tolist())))
    targets = torch.tensor(encode(feature, list(map(repr, actual.tolist())), metadata))
    outputs = targets + torch.from_numpy(random.normal(0, 0.1, 500)).float()
    predicted = feature.predictions(outputs, metadata)["predictions"].to_numpy()

    result = feature.evaluate(outputs, targets, metadata)

    assert set(result) == set(feature.metric_goals)
    squared = reference.mean_squared_error(actual, predicted)
    assert result == pytest.approx(
        {
            "loss": float(((outputs - targets) ** 2).mean()),
            "mean_squared_error": squared,
            "mean_absolute_error": reference.mean_absolute_error(actual, predicted),
            "root_mean_squared_error": math.sqrt(squared),
            "root_mean_squared_percentage_error": math.sqrt((((predicted - actual) / actual) ** 2).mean()),
            "mean_absolute_percentage_error": reference.mean_absolute_percentage_error(actual, predicted),
            "r2": reference.r2_score(actual, predicted),
        },
        rel=1e-3,
    )


@pytest.mark.parametrize(("rows", "defined"), [(0, set()), (1, {"loss", "mean_squared_error"})])
def test_metrics_that_are_undefined_are_nan(rows, defined):
    feature = _output(None)

    result = feature.evaluate(torch.ones(rows), torch.zeros(rows), {})

    assert set(result) == set(feature.metric_goals)
    assert math.isnan(result["r2"])
    assert math.isnan(result["mean_absolute_percentage_error"])  # a zero has no relative error
    assert all(result[name] == 1 for name in defined)


def test_predictions_are_clipped():
    feature = _output(None, clip=(0.0, 10.0))

    predicted = feature.predictions(torch.tensor([-1.0, 5.0, 11.0]), {})

    assert {name: values.to_pylist() for name, values in predicted.items()} == {"predictions": [0, 5, 10]}
