"""Datasets that tell a right dataframe engine from a wrong one, each with the config it is processed by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

ROWS = 300
_NUMBER, _CATEGORY, _TEXT = (
    {"name": name, "type": kind} for name, kind in [("x", "number"), ("c", "category"), ("t", "text")]
)
_SPLITS: dict[str, dict[str, Any]] = {
    "random": {"split": {"type": "random"}},
    "sample": {"split": {"type": "random", "probabilities": [0.5, 0.3, 0.2]}, "sample_ratio": 0.7},
    "fixed": {"split": {"type": "fixed", "column": "part"}},
    "stratify": {"split": {"type": "stratify", "column": "y"}},
    "datetime": {"split": {"type": "datetime", "column": "when"}},
    "hash": {"split": {"type": "hash", "column": "t"}},
}


@attrs.frozen(kw_only=True)
class Case:
    """A dataset and its config.

    Attributes:
        name: what is peculiar about it.
        make: writes or makes the dataset, given a folder of its own; returns what `core.preprocess` takes.
        config: as in a file.
        as_training_set: whether it is given as a training set, and so not divided.
        refused: whether it cannot be learnt from, and the errors are what is compared.
    """

    name: str
    make: Callable[[Path], Any] = attrs.field(repr=False)
    config: dict[str, Any] = attrs.field(repr=False)
    as_training_set: bool = False
    refused: bool = False


def cases() -> list[Case]:
    """All of them."""
    return [
        *(_case(f"{name} split", _csv(_rows()), preprocessing=settings) for name, settings in _SPLITS.items()),
        *(_missing(strategy) for strategy in ("ffill", "bfill", "drop_row", "fill_with_mean", "fill_with_mode")),
        _case("quotes and line breaks at a block's edge", _csv(_rows(t=_awkward_text))),
        _case("characters beyond ASCII", _csv(_rows(t=lambda i: "ä 漢 🙂 e\u0301"[i % 9 :], c=lambda i: "αβ"[i % 2]))),
        _case("a column without values in whole partitions", _csv(_rows(x=lambda i: i * 0.1 if i > 250 else None))),
        _case("typed, no values in whole partitions", _json_lines(_rows(x=lambda i: i * 0.1 if i > 250 else None))),
        _case("looks like numbers, later words", _csv(_rows(c=lambda i: str(i % 5) if i < 200 else "abc"[i % 3]))),
        _case("typed, integers and later fractions", _json_lines(_rows(x=lambda i: i if i < 200 else i + 0.5))),
        _case("typed, numbers and later words", _json_lines(_rows(c=lambda i: i % 5 if i < 200 else "abc"[i % 3]))),
        _case("several kinds in one column", _columns(_rows(c=lambda i: [1, "1", 2.5, None, True][i % 5]))),
        _case("a table in memory", _columns(_rows())),
        _case("numbers at the limits", _columns(_rows(x=lambda i: [0.5, float("nan"), 1e308, -0.0, 5e-324][i % 5]))),
        _case("many distinct values", _csv(_rows(3000, c=_one_of_2000, t=lambda i: f"w{i % 977} v{i}"))),
        _case("more distinct values than are kept", _csv(_rows(3000, c=_one_of_2000)), most_common=100),
        _case("files without rows among others", _files([0, 120, 0, 1, 179, 0])),
        _case("one row", _csv(_rows(1, y=lambda i: 2.5)), output="number", as_training_set=True),
        _refused("no rows", _csv(_rows(0))),
        _refused("infinite numbers", _columns(_rows(x=lambda i: float("inf") if i in (40, 200) else i * 0.5))),
        _refused("infinite numbers as text", _csv(_rows(x=lambda i: "inf" if i in (40, 200) else i))),
        _refused("values that cannot be read", _csv(_rows(x=lambda i: "no" if i in (33, 200) else i))),
        _refused("no value in any row", _csv(_rows(y=lambda i: None))),
        _refused("rows of a wrong length", _damaged),
    ]  # fmt: skip


def _case(
    name: str,
    make: Callable[[Path], Any],
    *,
    preprocessing: dict[str, Any] | None = None,
    most_common: int | None = None,
    output: str = "binary",
    as_training_set: bool = False,
) -> Case:
    category = {**_CATEGORY, "preprocessing": {"most_common": most_common}} if most_common else _CATEGORY
    config = {
        "input_features": [_NUMBER, category, _TEXT],
        "output_features": [{"name": "y", "type": output}],
        "preprocessing": preprocessing or {},
    }
    return Case(name=name, make=make, config=config, as_training_set=as_training_set)


def _refused(name: str, make: Callable[[Path], Any]) -> Case:
    return attrs.evolve(_case(name, make), refused=True)


def _missing(strategy: str) -> Case:
    def how(feature: dict[str, str]) -> dict[str, Any]:
        return {**feature, "preprocessing": {"missing_value_strategy": strategy}}

    features = {"fill_with_mean": [_NUMBER], "fill_with_mode": [_NUMBER, _CATEGORY]}.get(
        strategy, [_NUMBER, _CATEGORY, _TEXT]
    )
    rows = _rows(
        x=lambda i: i * 0.1 if 40 < i < 220 and i % 7 < 2 else None,
        c=lambda i: "abc"[i % 3] if i % 50 == 9 else None,
        t=lambda i: f"text {i}" if i % 90 == 17 else None,
    )
    if strategy == "drop_row":
        features = [_NUMBER]
    config = {
        "input_features": [how(feature) for feature in features],
        "output_features": [{"name": "y", "type": "category"}],
    }
    return Case(name=f"missing values, {strategy}", make=_csv(rows), config=config)


Rows = list[dict[str, Any]]


def _rows(count: int = ROWS, **columns: Callable[[int], Any]) -> Rows:
    makers: dict[str, Callable[[int], Any]] = {
        "x": lambda i: None if i % 17 == 3 else round(i * 0.37 - 20, 3),
        "c": lambda i: None if i % 23 == 5 else "abcde"[i * i % 5],
        "t": lambda i: " ".join(["the", "quick", "brown", "fox"][: i % 5]) + f" w{i % 13}",
        "y": lambda i: i % 3 == 0,
        "part": lambda i: ["train", "validation", "test"][i * 7 % 10 % 3],
        "when": lambda i: f"2024-{i * 5 % 12 + 1:02d}-{i * 11 % 28 + 1:02d}",
        **columns,
    }
    return [{name: maker(i) for name, maker in makers.items()} for i in range(count)]


def _one_of_2000(i: int) -> str:
    return f"c{i * 7919 % 2000}"


def _awkward_text(i: int) -> str:
    return ['two\nlines, "quoted"', ',\n",\n', '"', "plain", 'a 5" pipe', "\n\n", '""', "x" * (i % 50) + "\r\ny"][i % 8]


def _csv(rows: Rows) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "data.csv"
        header = ",".join(rows[0] if rows else _rows(1)[0])
        path.write_bytes("\n".join([header, *map(_line, rows), ""]).encode())
        return path

    return make


def _line(row: dict[str, Any]) -> str:
    return ",".join("" if value is None else _quoted(str(value)) for value in row.values())


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set('",\r\n') else text


def _json_lines(rows: Rows) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "data.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return make


def _columns(rows: Rows) -> Callable[[Path], dict[str, list[Any]]]:
    return lambda folder: {name: [row[name] for row in rows] for name in rows[0]}


def _files(sizes: list[int]) -> Callable[[Path], Path]:
    """One file of each number of rows."""

    def make(folder: Path) -> Path:
        rows, start = _rows(sum(sizes)), 0
        for number, size in enumerate(sizes):
            (folder / str(number)).mkdir()
            _csv(rows[start : start + size])(folder / str(number))
            start += size
        return folder

    return make


def _damaged(folder: Path) -> Path:
    path = _csv(_rows())(folder)
    lines = path.read_text().splitlines()
    lines[99] += ",one more"
    lines[200] += ",one more"
    path.write_text("\n".join(lines))
    return path
