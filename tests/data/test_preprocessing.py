"""The passes: what is learnt from which rows, how missing values are treated, and what is refused."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from core.config.sections import Config, FixedSplit
from core.data import Datasets, Processed
from core.data.preprocessing import STAGES, preprocess
from core.data.sources import missing_columns, open_source
from core.errors import DataError
from core.features import BinaryOutput, CategoryInput, CategoryOutput, NumberInput, NumberOutput, TextInput
from core.features.category import CategoryPreprocessing
from core.features.number import NumberPreprocessing
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions

Run = Callable[..., Processed]
MakeConfig = Callable[..., Config]


def whole(processed: Processed) -> pd.DataFrame:
    """All splits' rows in the order of the dataset, indexed by row number."""
    frames = []
    for split in processed.splits.values():
        frame = split.read(0, split.rows).to_pandas()
        frames.append(frame.set_index(split.row_numbers().to_numpy()))
    return pd.concat(frames).sort_index()


def test_statistics_come_from_training_rows_and_classes_from_all(run: Run, make_config: MakeConfig) -> None:
    data = {"x": [1.0, 3.0, 100.0, 1e6], "y": ["a", "b", "c", "d"], "split": [0, 0, 1, 2]}
    config = make_config((NumberInput(name="x"),), (CategoryOutput(name="y"),), split=FixedSplit())

    found = run(config, data, partitions=4)

    assert found.metadata["x"]["mean"] == 2.0
    assert found.metadata["y"]["vocabulary"] == ["a", "b", "c", "d"]
    assert whole(found)["x"].tolist() == [-1.0, 1.0, 98.0, 999998.0]


def test_stored_types_and_names(run: Run, make_config: MakeConfig, rows: Any) -> None:
    data = {**rows, "words": [f"word{i % 7} and more" for i in range(200)]}
    config = make_config(
        (NumberInput(name="number", column="x"), CategoryInput(name="c"), TextInput(name="words")),
        (BinaryOutput(name="y"), NumberOutput(name="again", column="number_again")),
    )

    schema = run(config, {**data, "number_again": list(range(200))}).splits["training"].schema

    kinds = {field.name: str(field.type) for field in schema}
    assert {name: kinds[name] for name in ("number", "c", "y", "again")} == {
        "number": "float", "c": "int32", "y": "bool", "again": "float",
    }  # fmt: skip
    assert kinds["words"].startswith("fixed_size_list<")


@pytest.mark.parametrize("partitions", [1, 2, 5, 12])
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ffill", [0, 0, 2, 2, 2, 2, 2, 7, 7, 7, 7, 7]),
        ("bfill", [2, 2, 2, 7, 7, 7, 7, 7, 0, 0, 0, 0]),
        ("drop_row", [2, 7]),
        ("fill_with_mean", [4.5, 4.5, 2, 4.5, 4.5, 4.5, 4.5, 7, 4.5, 4.5, 4.5, 4.5]),
        ("fill_with_const", [0, 0, 2, 0, 0, 0, 0, 7, 0, 0, 0, 0]),
    ],
)
def test_missing_values(
    run: Run, make_config: MakeConfig, strategy: Any, expected: list[float], partitions: int
) -> None:
    data = {"x": [None, None, 2, None, None, None, None, 7, None, None, None, None], "y": [0, 0, 0, 1] * 3}
    how = NumberPreprocessing(missing_value_strategy=strategy, normalization=None)
    config = make_config((NumberInput(name="x", preprocessing=how),))

    found = whole(run(config, training_set=data, partitions=partitions))

    assert found["x"].tolist() == expected


def test_rows_without_a_target_are_left_out_and_counted(
    run: Run, make_config: MakeConfig, rows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = {**rows, "y": [None if i < 12 else value for i, value in enumerate(rows["y"])]}

    with caplog.at_level(logging.INFO, "core"):
        found = run(make_config(), data, partitions=3)

    assert whole(found).index.tolist() == list(range(12, 200))
    assert "feature 'y': 12 of 200 rows have no value and are left out" in caplog.messages


def test_a_dropped_row_counts_in_no_summary(run: Run, make_config: MakeConfig) -> None:
    data = {"x": [1, 2, 1000], "c": ["a", "b", "z"], "y": [0, 1, None]}

    found = run(make_config(), training_set=data)

    assert found.metadata["x"]["max"] == 2
    assert "z" not in found.metadata["c"]["vocabulary"]


def test_tied_features_share_what_is_known_of_both_columns(run: Run, make_config: MakeConfig) -> None:
    data = {"home": ["a", "b", "a"], "away": ["b", "c", "b"], "y": [0, 1, 1]}
    config = make_config((CategoryInput(name="home"), CategoryInput(name="away", tied="home")))

    found = run(config, training_set=data)

    assert found.metadata["home"] == found.metadata["away"]
    assert sorted(found.metadata["home"]["vocabulary"][1:]) == ["a", "b", "c"]
    table = whole(found)
    assert table["home"][1] == table["away"][0]


def test_repeated_and_distinct_texts_are_read_alike(run: Run, make_config: MakeConfig, tmp_path: Path) -> None:
    numbers = [" 7", "+8.5", "9 ", "", "1e3"]
    repeated = pd.DataFrame({"x": numbers * 600, "c": ["a ", "b", " a"] * 1000, "y": [0, 1] * 1500})
    few = repeated.iloc[:1000]  # too few rows to see that texts repeat
    config = make_config(
        (NumberInput(name="x", preprocessing=NumberPreprocessing(normalization=None)), CategoryInput(name="c"))
    )

    found = whole(run(config, training_set=repeated, partitions=2))
    one_by_one = whole(run(config, training_set=few, partitions=1))

    assert found["x"].tolist() == [7.0, 8.5, 9.0, 0.0, 1000.0] * 600
    assert found.iloc[:1000].equals(one_by_one)


def test_all_problems_come_at_once_with_their_rows(run: Run, make_config: MakeConfig, tmp_path: Path) -> None:
    lines = [f"{i},a,{i % 2}" for i in range(3000)]
    lines[16] = "seventeen,a,0"
    lines[2500] = "later,a,1"
    (tmp_path / "d.csv").write_text("x,z,y\n" + "\n".join(lines))
    config = make_config((NumberInput(name="x"), NumberInput(name="second", column="z")))

    for partitions in (1, 3, 17):
        with pytest.raises(DataError) as raised:
            run(config, str(tmp_path / "d.csv"), partitions=partitions)

        assert [(problem.path, problem.found) for problem in raised.value.problems] == [
            ("input_features.x (column 'x', row 17)", "seventeen"),
            ("input_features.second (column 'z', row 1)", "a"),
        ]


def test_a_bad_value_among_repeated_ones_is_found_in_its_first_row(run: Run, make_config: MakeConfig) -> None:
    values = ["1", "2"] * 1000
    values[1500] = values[1600] = "x"

    with pytest.raises(DataError, match="row 1501"):
        run(make_config((NumberInput(name="x"),)), {"x": values, "y": [0, 1] * 1000})


def test_rows_are_counted_in_the_dataset_when_it_is_sampled(run: Run, make_config: MakeConfig) -> None:
    values = [str(i) for i in range(100)]
    values[90] = "x"
    data = {"x": values, "c": ["a"] * 100, "y": [0, 1] * 50}

    with pytest.raises(DataError, match="row 91"):
        run(make_config(sample_ratio=0.9), data, partitions=3, seed=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": [None] * 200}, "output_features.y (column 'y'): has no value in any row"),
        ({"y": [1] * 200}, "output_features.y (column 'y'): has one class only"),
        ({"y": list("abcd") * 50}, "output_features.y (column 'y'): has more than two values"),
        ({"x": [None] * 200}, "input_features.x (column 'x'): has no values"),
        ({"c": [[1]] * 200}, "input_features.c (column 'c', row 1)"),
    ],
)
def test_columns_that_cannot_be_learnt(
    run: Run, make_config: MakeConfig, rows: Any, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError) as raised:
        run(make_config(), {**rows, **change}, partitions=3)

    assert said in str(raised.value)


def test_problems_of_several_columns_are_told_together(run: Run, make_config: MakeConfig, rows: Any) -> None:
    with pytest.raises(DataError) as raised:
        run(make_config(), {**rows, "x": [None] * 200, "y": [1] * 200})

    assert [problem.path.split(" ")[0] for problem in raised.value.problems] == [
        "input_features.x",
        "output_features.y",
    ]


def test_missing_columns_name_the_feature_and_the_nearest_column(run: Run, make_config: MakeConfig) -> None:
    with pytest.raises(DataError) as raised:
        run(make_config(split=FixedSplit(column="part")), {"X": [1], "c": ["a"], "target": [1]})

    assert [problem.path for problem in raised.value.problems] == [
        "input_features.x",
        "output_features.y",
        "preprocessing.split.column",
    ]
    assert raised.value.hint == "did you mean 'X'?"


def test_a_file_with_a_header_alone_has_no_rows(run: Run, make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,c,y\n")

    with pytest.raises(DataError, match=r"d\.csv: the dataset has no rows"):
        run(make_config(), str(tmp_path / "d.csv"))


def test_every_row_dropped_by_one_feature_or_another(run: Run, make_config: MakeConfig) -> None:
    how = CategoryPreprocessing(missing_value_strategy="drop_row")
    config = make_config((CategoryInput(name="c", preprocessing=how),))

    with pytest.raises(DataError, match="no rows are left for training"):
        run(config, training_set={"c": ["a", None], "y": [None, 1]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no dataset is given"),
        ({"dataset": {}, "test_set": {}}, "both a dataset and a test set"),
        ({"test_set": {}}, "a test set is given but no training set"),
    ],
)
def test_datasets_that_do_not_go_together(run: Run, make_config: MakeConfig, given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        run(make_config(), **given)


def test_datasets_can_be_described_and_given_again() -> None:
    given = Datasets(training_set="a.csv", test_set=[Path("b.csv"), "s3://bucket/c.csv"])

    here = os.path.abspath
    assert given.described() == {"training_set": here("a.csv"), "test_set": [here("b.csv"), "s3://bucket/c.csv"]}
    assert str(given) == "a.csv, b.csv, s3://bucket/c.csv"
    assert Datasets(dataset={"a": [1]}).described() is None
    assert not Datasets()


def test_stages_are_reported(make_config: MakeConfig, rows: Any) -> None:
    seen: list[tuple[str, int, int]] = []

    preprocess(
        make_config(),
        Datasets(dataset=rows),
        seed=1,
        processor=PandasProcessor(ProcessorOptions()),
        progress=lambda *stage: seen.append(stage),
    )

    assert seen == [*((stage, done, len(STAGES)) for done, stage in enumerate(STAGES)), ("encode", 4, 4)]


def test_a_split_reads_any_range_of_rows(run: Run, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.data.passes.ROW_GROUP_ROWS", 7)
    data = {"x": np.arange(100.0), "y": [0, 1] * 50}
    how = NumberPreprocessing(normalization=None)
    split = run(make_config((NumberInput(name="x", preprocessing=how),)), training_set=data, partitions=6).splits[
        "training"
    ]

    for start, stop in [(0, 100), (0, 1), (99, 100), (13, 58), (50, 50), (96, 200)]:
        assert split.read(start, stop)["x"].to_pylist() == list(range(start, min(stop, 100)))


def test_another_dataset_is_told_in_one_line() -> None:
    table = pa.table({f"c{number}": [1] for number in range(40)})

    (problem,) = missing_columns(open_source(table), [(f"input_features.{name}", name) for name in "abcdefgh"])

    assert "lacks 8 of the 8 columns that are wanted: 'a', 'b', 'c', 'd', 'e', …" in str(problem)
    assert "Is it the right dataset?" in problem.hint


def test_a_file_that_another_machine_does_not_see_is_told_apart_from_one_that_is_gone(tmp_path):
    from core.data.preprocessing import _other_disks_told
    from core.errors import StorageError

    (tmp_path / "here.csv").write_text("a\n1\n")
    hints = {}
    for name in ("here.csv", "gone.csv"):
        with pytest.raises(StorageError) as raised, _other_disks_told(os.path.exists):
            raise StorageError("cannot read it: No such file or directory", path=str(tmp_path / name), hint="as it was")
        hints[name] = raised.value.hint

    assert "a node of the cluster does not see it" in hints["here.csv"]
    assert hints["gone.csv"] == "as it was"
