"""Unseen data: the same encoding as in training, every row accounted for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.config import load
from core.config.sections import Config, DatetimeSplit, FixedSplit, HashSplit, RandomSplit, StratifySplit
from core.data import EncodedBlock, Processed, encode_inputs, open_source
from core.errors import DataError
from core.features import CategoryInput, NumberInput, TextInput
from core.features.number import NumberPreprocessing

Run = Callable[..., Processed]
MakeConfig = Callable[..., Config]


def joined(blocks: Any) -> EncodedBlock:
    found = list(blocks)
    return EncodedBlock(
        pa.concat_tables([block.table for block in found]),
        np.concatenate([block.valid for block in found]),
        np.concatenate([block.labelled for block in found]),
        np.concatenate([block.rows for block in found]),
    )


@pytest.mark.parametrize("block_rows", [7, 64, 1000])
@pytest.mark.parametrize(
    "split",
    [
        RandomSplit(),
        FixedSplit(column="part"),
        StratifySplit(column="y"),
        DatetimeSplit(column="t"),
        HashSplit(column="t"),
    ],
    ids=lambda split: type(split).__name__,
)
def test_a_split_is_the_one_of_training(
    run: Run, make_config: MakeConfig, rows: Any, split: Any, block_rows: int
) -> None:
    data = {**rows, "part": [i * i // 7 % 3 for i in range(200)], "t": [f"{1990 + i % 30}-01-01" for i in range(200)]}
    config = make_config(split=split)
    stored = run(config, data, seed=5)

    for name, part in stored.splits.items():
        found = joined(
            encode_inputs(config, stored.metadata, data, outputs=True, split=name, seed=5, block_rows=block_rows)
        )

        assert found.table.equals(part.read(0, part.rows))
        assert found.rows.tolist() == part.row_numbers().to_pylist()
        assert found.valid.all()
        assert found.labelled.all()


def test_inputs_need_no_targets(run: Run, make_config: MakeConfig, rows: Any) -> None:
    config = make_config()
    stored = run(config, training_set=rows)

    found = joined(encode_inputs(config, stored.metadata, {"x": rows["x"], "c": rows["c"]}))

    assert found.table.column_names == ["x", "c"]
    assert found.table.equals(stored.splits["training"].read(0, 200).select(["x", "c"]))
    assert found.rows.tolist() == list(range(200))


def test_rows_that_training_would_drop_stay_and_are_marked(run: Run, make_config: MakeConfig) -> None:
    how = NumberPreprocessing(missing_value_strategy="drop_row", normalization=None)
    config = make_config((NumberInput(name="x", preprocessing=how), TextInput(name="c")))
    stored = run(config, training_set={"x": [1, 2], "c": ["a b", "b"], "y": [0, 1]})

    some = joined(encode_inputs(config, stored.metadata, {"x": [None, 3, None, 4], "c": ["a", "b", "a", None]}))
    none = joined(encode_inputs(config, stored.metadata, {"x": [None, None], "c": ["a", "b"]}))

    assert some.valid.tolist() == [False, True, False, True]
    assert [value for value, valid in zip(some.table["x"].to_pylist(), some.valid, strict=True) if valid] == [3, 4]
    assert none.valid.tolist() == [False, False]
    assert none.table.schema == some.table.schema
    assert not any(column.null_count for table in (some.table, none.table) for column in table.columns)


def test_rows_without_a_target_are_marked_and_keep_their_inputs(run: Run, make_config: MakeConfig, rows: Any) -> None:
    config = make_config()
    stored = run(config, rows)
    data = {**rows, "y": [None, *rows["y"][1:]]}

    inputs = joined(encode_inputs(config, stored.metadata, data))
    both = joined(encode_inputs(config, stored.metadata, data, outputs=True))

    assert inputs.labelled.all()
    assert both.labelled.tolist() == [False] + [True] * 199
    assert both.valid.all()
    assert both.table.select(["x", "c"]).equals(inputs.table)
    assert both.table["y"].null_count == 0


@pytest.mark.parametrize("strategy", ["ffill", "bfill"])
@pytest.mark.parametrize("block_rows", [2, 3, 100])
def test_neighbours_are_found_in_other_blocks(
    run: Run, make_config: MakeConfig, strategy: Any, block_rows: int
) -> None:
    how = NumberPreprocessing(missing_value_strategy=strategy, normalization=None)
    config = make_config((NumberInput(name="x", preprocessing=how),))
    stored = run(config, training_set={"x": [1, 2], "y": [0, 1]})
    data = {"x": [5.0, None, None, None, None, 6.0, None]}

    found = joined(encode_inputs(config, stored.metadata, data, block_rows=block_rows))

    expected = [5, 5, 5, 5, 5, 6, 6] if strategy == "ffill" else [5, 6, 6, 6, 6, 6, 0]
    assert found.table["x"].to_pylist() == expected


def test_an_unseen_category_is_unknown_and_an_unseen_class_is_refused(run: Run, make_config: MakeConfig) -> None:
    from core.features import CategoryOutput

    config = make_config((CategoryInput(name="c"),), (CategoryOutput(name="y"),))
    stored = run(config, training_set={"c": ["a", "b"], "y": ["u", "v"]})

    found = joined(encode_inputs(config, stored.metadata, {"c": ["a", "new"]}))

    assert found.table["c"].to_pylist()[1] == stored.metadata["c"]["vocabulary"].index("<UNK>")
    with pytest.raises(DataError) as raised:
        list(encode_inputs(config, stored.metadata, {"c": ["a"], "y": ["w"]}, outputs=True))
    assert raised.value.path == "output_features.y (column 'y')"


def test_a_missing_column_is_refused_at_once(run: Run, make_config: MakeConfig, rows: Any) -> None:
    config = make_config()
    stored = run(config, rows)

    with pytest.raises(DataError, match="has no column 'x'") as raised:
        encode_inputs(config, stored.metadata, {"X": [1], "c": ["a"]})

    assert (raised.value.path, raised.value.hint) == ("input_features.x", "did you mean 'X'?")


def test_a_value_that_cannot_be_read_names_its_row(
    run: Run, make_config: MakeConfig, rows: Any, tmp_path: Path
) -> None:
    config = make_config()
    stored = run(config, rows)
    (tmp_path / "d.csv").write_text("x,c\n" + "1,a\n" * 9 + "ten,a\n")

    with pytest.raises(DataError, match=r"input_features\.x \(column 'x', row 10\)"):
        list(encode_inputs(config, stored.metadata, open_source(tmp_path / "d.csv"), block_rows=4))


def test_no_rows(run: Run, make_config: MakeConfig, rows: Any, tmp_path: Path) -> None:
    config = make_config()
    stored = run(config, rows)
    (tmp_path / "d.csv").write_text("x,c\n")

    with pytest.raises(DataError, match="has no rows"):
        list(encode_inputs(config, stored.metadata, str(tmp_path / "d.csv")))


@pytest.mark.parametrize(
    "values", [["a", "b", " a", "new", "b"] * 20, ["a", None, "", "b", "c"] * 20], ids=["all", "gaps"]
)
@pytest.mark.parametrize("group", [7, 100])
def test_texts_of_parquet_files_are_encoded_as_those_of_tables(tmp_path, values, group):
    # given: row groups with dictionaries of their own, some of whose values a block does not hold
    config = load(
        {
            "input_features": [{"name": "c", "type": "category"}, {"name": "t", "type": "text", "column": "c"}],
            "output_features": [{"name": "y", "type": "number"}],
        }
    )
    metadata = {
        "c": {"vocabulary": ["<UNK>", "a", "b"], "fill_value": "b"},
        "t": {"vocabulary": ["<PAD>", "<UNK>", "a"], "length": 2},
    }
    table = pa.table({"c": pa.array(values), "k": pa.array(values)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=group)
    only = attrs.evolve(config, input_features=config.input_features[:1])
    # when
    found = [
        pa.concat_tables([block.table for block in encode_inputs(of, metadata, data, block_rows=9)])
        for of in (config, only)
        for data in (table, str(tmp_path / "t.parquet"))
    ]
    # then
    assert found[0].equals(found[1])
    assert found[2].equals(found[3])
    assert found[2].column("c").equals(found[0].column("c"))
