"""Membership: exact sizes, seeds, and no dependence on partitions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.sections import (
    Config,
    DatetimeSplit,
    FixedSplit,
    HashSplit,
    Preprocessing,
    RandomSplit,
    StratifySplit,
)
from core.data import Processed
from core.data.permutation import rank
from core.data.splits import largest_remainders
from core.errors import DataError

Run = Callable[..., Processed]
MakeConfig = Callable[..., Config]


@given(st.integers(1, 3000), st.integers(0, 5))
def test_ranks_are_a_permutation(count: int, seed: int) -> None:
    assert sorted(rank(np.arange(count), count, seed, 2).tolist()) == list(range(count))


def test_a_rank_depends_on_nothing_but_its_row() -> None:
    whole = rank(np.arange(1000), 1000, 7, 2)

    assert np.array_equal(whole[[999, 3, 500]], rank(np.array([999, 3, 500]), 1000, 7, 2))


def test_every_order_of_four_rows_is_about_equally_likely() -> None:
    counts = Counter(tuple(rank(np.arange(4), 4, seed, 2)) for seed in range(4800))

    assert len(counts) == 24
    assert min(counts.values()) > 140  # of 200 expected, four standard deviations


@given(st.tuples(*[st.floats(0, 1)] * 3).filter(lambda p: sum(p) > 0.1), st.integers(0, 10**6))
def test_sizes_are_within_one_of_their_share(probabilities: tuple[float, ...], rows: int) -> None:
    sizes = largest_remainders(probabilities, rows)

    assert sum(sizes) == rows
    assert all(abs(size - p / sum(probabilities) * rows) < 1.001 for size, p in zip(sizes, probabilities, strict=True))


def row_numbers(processed: Processed) -> dict[str, list[int]]:
    return {name: split.row_numbers().to_pylist() for name, split in processed.splits.items()}


@pytest.mark.parametrize(
    "split",
    [
        RandomSplit(),
        FixedSplit(column="where"),
        StratifySplit(column="c"),
        DatetimeSplit(column="when"),
        HashSplit(column="id"),
    ],
    ids=lambda split: type(split).__name__,
)
def test_partitions_change_nothing(run: Run, make_config: MakeConfig, rows: dict[str, list[Any]], split: Any) -> None:
    data = {
        **rows,
        "where": [("train", "1", "Test", 0)[i % 4] for i in range(200)],
        "when": [f"2024-{i * 7 % 12 + 1:02d}-{i * 5 % 28 + 1:02d}" for i in range(200)],
        "id": [f"user{i % 50}" for i in range(200)],
    }
    config = make_config(split=split)

    results = [run(config, data, partitions=n, cache=str(n)) for n in (1, 3, 17)]

    for other in results[1:]:
        assert other.key == results[0].key
        assert other.metadata == results[0].metadata
        for name, part in results[0].splits.items():
            assert other.splits[name].read(0, part.rows).equals(part.read(0, part.rows))
            assert other.splits[name].row_numbers().equals(part.row_numbers())
    assert sorted(itertools.chain(*row_numbers(results[0]).values())) == list(range(200))


def test_random_sizes_are_exact_and_the_seed_chooses(run: Run, make_config: MakeConfig, rows: Any) -> None:
    config = make_config(split=RandomSplit(probabilities=(0.7, 0.1, 0.2)))

    first, second = (row_numbers(run(config, rows, seed=seed)) for seed in (1, 2))

    assert {name: len(numbers) for name, numbers in first.items()} == {"training": 140, "validation": 20, "test": 40}
    assert first["test"] != second["test"]
    assert first["test"] == sorted(first["test"])


def test_stratified_sizes_are_exact_in_every_class(run: Run, make_config: MakeConfig) -> None:
    data = {"x": list(range(60)), "c": ["a"] * 40 + ["b"] * 10 + [None] * 10, "y": [0, 1] * 30}
    config = make_config(split=StratifySplit(column="c", probabilities=(0.5, 0.2, 0.3)))

    found = row_numbers(run(config, data))

    classes = {name: Counter(str(data["c"][row]) for row in numbers) for name, numbers in found.items()}
    assert classes == {
        "training": {"a": 20, "b": 5, "None": 5},
        "validation": {"a": 8, "b": 2, "None": 2},
        "test": {"a": 12, "b": 3, "None": 3},
    }


@pytest.mark.parametrize(
    "when",
    [
        ["2024-01-01", "2023-05-06", "2025-01-01", "2022-12-31"],
        [1700000000, 1600000000, 1800000000, 1500000000],
        ["1700000000", "1600000000", "1800000000.5", "1500000000"],
        list(pd.to_datetime(["2024-01-01", "2023-05-06", "2025-01-01", "2022-12-31"])),
        ["Feb 3, 2024", "2023/05/06", "3 March 2025", "12/31/2022"],
        [20240101, 20230506, 20250101, 20221231],
    ],
)
def test_the_newest_rows_test_in_whatever_way_time_is_written(run: Run, make_config: MakeConfig, when: Any) -> None:
    data = pd.DataFrame({"x": range(4), "c": list("abab"), "y": [0, 0, 1, 1], "t": when})
    config = make_config(split=DatetimeSplit(column="t", probabilities=(0.5, 0.25, 0.25)))

    assert row_numbers(run(config, data)) == {"training": [1, 3], "validation": [0], "test": [2]}


def test_equal_times_keep_the_order_of_rows(run: Run, make_config: MakeConfig) -> None:
    data = {"x": range(10), "c": ["a"] * 10, "y": [0, 1] * 5, "t": ["2024-01-01"] * 10}
    config = make_config(split=DatetimeSplit(column="t", probabilities=(0.6, 0.2, 0.2)))

    assert row_numbers(run(config, data))["test"] == [8, 9]


def test_a_hash_keeps_rows_in_their_split_when_others_come_and_go(run: Run, make_config: MakeConfig) -> None:
    identifiers = [f"user{i}" for i in range(300)]
    config = make_config(split=HashSplit(column="id"))

    def placed(ids: list[str]) -> dict[str, str]:
        data = {"x": range(len(ids)), "c": ["a"] * len(ids), "y": [i % 2 for i in range(len(ids))], "id": ids}
        found = row_numbers(run(config, data))
        return {ids[row]: name for name, numbers in found.items() for row in numbers}

    every, some = placed(identifiers), placed(identifiers[::-2])

    assert some.items() <= every.items()
    assert 180 <= sum(name == "training" for name in every.values()) <= 240


def test_a_sample_is_taken_before_the_split(run: Run, make_config: MakeConfig, rows: Any) -> None:
    ratio = row_numbers(run(make_config(sample_ratio=0.5), rows))
    size = row_numbers(run(make_config(sample_size=10), rows))

    assert {name: len(numbers) for name, numbers in ratio.items()} == {"training": 70, "validation": 10, "test": 20}
    assert {name: len(numbers) for name, numbers in size.items()} == {"training": 7, "validation": 1, "test": 2}
    assert set(itertools.chain(*size.values())) < set(itertools.chain(*ratio.values()))


def test_sets_given_apart_are_not_divided(run: Run, make_config: MakeConfig, rows: Any) -> None:
    test = {name: values[:30] for name, values in rows.items()}

    found = run(make_config(), training_set=rows, test_set=test, partitions=3)

    assert {name: split.rows for name, split in found.splits.items()} == {"training": 200, "validation": 0, "test": 30}
    assert found.splits["test"].row_numbers().to_pylist() == list(range(30))
    assert found.splits["validation"].read(0, 0).schema == found.splits["training"].schema


@pytest.mark.parametrize(
    ("split", "values", "said"),
    [
        (FixedSplit(), {}, "has no column 'split'"),
        (FixedSplit(), {"split": [0, 1, 2, 3]}, "row 4: not the name of a split"),
        (FixedSplit(), {"split": [0, None, 2, 0]}, "no value in row 2"),
        (FixedSplit(), {"split": [1, 1, 2, 2]}, "no rows are left for training"),
        (RandomSplit(probabilities=(0.1, 0.4, 0.5)), {}, "no rows are left for training"),
        (DatetimeSplit(column="split"), {"split": ["2024-01-01", "soon", "2024", "2023"]}, "row 2: not a date or time"),
        (HashSplit(column="split"), {"split": ["a", None, "b", "c"]}, "no value in row 2"),
    ],
)
def test_splits_that_cannot_be(run: Run, make_config: MakeConfig, split: Any, values: Any, said: str) -> None:
    data = {"x": [1, 2, 3, 4], "c": list("abab"), "y": [0, 1, 0, 1], **values}

    with pytest.raises(DataError, match=said) as raised:
        run(make_config(split=split), data, partitions=3)

    assert raised.value.path.startswith("preprocessing.split")


def test_an_empty_training_split_tells_the_sizes(run: Run, make_config: MakeConfig) -> None:
    data = {"x": [1, 2], "c": ["a", "b"], "y": [0, 1]}

    with pytest.raises(DataError) as raised:
        run(
            Config(
                **{
                    **_fields(make_config()),
                    "preprocessing": Preprocessing(split=RandomSplit(probabilities=(0.1, 0.4, 0.5))),
                }
            ),
            data,
        )

    assert raised.value.found == {"training": 0, "validation": 1, "test": 1}


def _fields(config: Config) -> dict[str, Any]:
    return {"input_features": config.input_features, "output_features": config.output_features}
