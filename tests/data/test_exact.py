"""Moments against exact rational arithmetic."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.data.exact import ExactMoments

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def moments(values: list[float]) -> ExactMoments:
    result = ExactMoments()
    result.update(np.array(values, np.float64))
    return result


def exact(values: list[float], ddof: int = 0) -> tuple[float, float]:
    fractions = [Fraction(value) for value in values]
    mean = sum(fractions, Fraction(0)) / len(values)
    variance = sum(((value - mean) ** 2 for value in fractions), Fraction(0)) / (len(values) - ddof)
    try:
        return float(mean), float(variance)
    except OverflowError:
        return float(mean), math.inf


@given(st.lists(FINITE, min_size=1, max_size=40))
def test_mean_and_variance_are_correctly_rounded(values: list[float]) -> None:
    mean, variance = exact(values)

    found = moments(values)

    assert (found.mean(), found.variance()) == (mean, variance)
    assert (found.count, found.min, found.max) == (len(values), min(values), max(values))


@given(st.lists(FINITE, min_size=2, max_size=40), st.data())
def test_no_grouping_or_order_changes_a_bit(values: list[float], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    groups = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]

    merged = ExactMoments()
    for group in groups:
        merged.merge(pickle.loads(pickle.dumps(moments(group))))

    whole = moments(values)
    assert (merged.mean(), merged.variance(1), merged.std()) == (whole.mean(), whole.variance(1), whole.std())


@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1.0, 1e150])
@pytest.mark.parametrize("rows", [3, 40_000])
def test_large_arrays_agree_with_fsum(rows: int, scale: float) -> None:
    values = np.random.default_rng(0).normal(3, 1, rows) * scale

    found = ExactMoments()
    found.update(values)

    assert found.mean() == pytest.approx(math.fsum(values) / rows, rel=1e-15)
    assert found.std() == pytest.approx(values.std(), rel=1e-12, abs=0) or scale == 1e-300


@given(st.lists(st.one_of(st.integers(-(2**24), 2**24), st.integers(-(2**40), 2**40), FINITE).map(float), min_size=1))
def test_whole_numbers_take_no_other_way_out(values: list[float]) -> None:
    found = moments(values)

    assert (found.mean(), found.variance()) == exact(values)


def test_a_deviation_is_known_where_the_variance_is_too_large_for_a_float() -> None:
    found = moments([1e200, -1e200])

    assert found.variance() == math.inf
    assert found.std() == 1e200


def test_a_large_mean_does_not_swallow_a_small_deviation() -> None:
    assert moments([1e15, 1e15 + 1, 1e15 + 2]).variance(1) == 1.0


def test_sums_survive_many_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.data.exact._FLUSH_CHUNKS", 2)
    found = ExactMoments()
    for _ in range(7):
        found.update(np.array([1.5, -2.25]))

    assert found.mean() == -0.375
    assert found.variance() == exact([1.5, -2.25])[1]


def test_no_values_have_no_mean() -> None:
    empty = ExactMoments()
    empty.update(np.array([], np.float64))

    assert math.isnan(empty.mean())
    assert math.isnan(empty.std())
    assert math.isnan(moments([1.0]).variance(1))
