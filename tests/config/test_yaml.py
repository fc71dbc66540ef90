from __future__ import annotations

import math
import time

import pytest

from core.config.yaml import parse, scalar
from core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-1.5E+2", -150.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("12", 12),
        ("-7", -7),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("No", "No"),
        ("yes", "yes"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e", "1e"),
        ("+", "+"),
        ("0b11", "0b11"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    for read in (scalar(text), parse(f"key: {text}", "c.yaml").data["key"]):
        assert read == value
        assert type(read) is type(value)


def test_quotes_and_tags_decide_the_type() -> None:
    assert parse("a: '1'\nb: !!str 1\nc: !!float 1\nd: !!int '7'", "c.yaml").data == {
        "a": "1",
        "b": "1",
        "c": 1.0,
        "d": 7,
    }


def test_keys_are_names_even_if_they_look_like_numbers() -> None:
    assert parse("0: a\ntrue: b\nnull: c", "c.yaml").data == {"0": "a", "true": "b", "null": "c"}


def test_every_value_knows_its_place() -> None:
    places = parse("trainer:\n  epochs: 3\nlist:\n  - {name: x}\n", "c.yaml").places

    assert str(places["trainer", "epochs"]) == "c.yaml:2:3"
    assert str(places["list", 0]) == "c.yaml:4:5"
    assert str(places["list", 0, "name"]) == "c.yaml:4:6"


def test_anchors_and_merge_keys_share_settings() -> None:
    text = """
base: &base {type: number, encoder: {type: dense, dropout: 0.1}}
more: &more {column: c}
plain: *base
merged:
  <<: [*base, *more]
  type: binary
"""
    data = parse(text, "c.yaml").data

    assert data["plain"] == data["base"]
    assert data["merged"] == {"type": "binary", "encoder": {"type": "dense", "dropout": 0.1}, "column": "c"}


def test_an_own_key_keeps_its_place_beside_a_merge() -> None:
    places = parse("base: &base\n  a: 1\nmerged:\n  <<: *base\n  a: 2\n", "c.yaml").places

    assert str(places["merged", "a"]) == "c.yaml:5:3"


def test_an_empty_document_is_null() -> None:
    assert parse("", "c.yaml").data is None
    assert parse("# nothing\n---\n", "c.yaml").data is None


def test_every_repeated_key_is_named_with_the_line_of_the_first() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a: 1\nb: {c: 1, c: 2}\na: 2\n", "c.yaml")

    assert [problem.path for problem in caught.value.problems] == ["c.yaml:2:11: b.c", "c.yaml:3:1: a"]
    assert "line 1" in caught.value.problems[1].hint


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        ("a: [1\nb: 2", "c.yaml:2:2", "expected"),
        ("a: b: c", "c.yaml:1:5", "mapping values"),
        ("a: 'x", "c.yaml:1:6", "end of stream"),
        ("a: *b", "c.yaml:1:4", "alias"),
        ("- a\nb: 1", "c.yaml:2:1", "expected"),
        ("--- 1\n--- 2", "c.yaml:2:1", "another document"),
        ("a: !!python/name:os.system x", "c.yaml:1:4", "unknown tag"),
        ("a: !!set {x}", "c.yaml:1:4", "unknown tag"),
        ("a: !!int x", "c.yaml:1:4", "tag !!int"),
        ("? [1]\n: 2", "c.yaml:1:3", "single word"),
        ("a: {<<: [1]}", "c.yaml:1:10", "merges mappings"),
        ("a: &a [*a]", "c.yaml:1:4", "inside the value"),
        ("a: &a {b: {<<: *a}}", "c.yaml:1:4", "inside the value"),
        ("a: \x07", "c.yaml", "not readable"),
    ],
)
def test_unreadable_text_is_placed(text: str, where: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "c.yaml")

    assert caught.value.path.startswith(where)
    assert reason in str(caught.value)


@pytest.mark.parametrize("depth", [900, 50_000])
def test_nesting_without_end_is_refused(depth: int) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml.*nest"):
        parse("[" * depth + "]" * depth, "c.yaml")


def test_aliases_that_unfold_without_end_are_refused_quickly() -> None:
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    started = time.monotonic()

    with pytest.raises(ConfigError, match="unfolded"):
        parse("a0: &a0 [x]\n" + levels, "c.yaml")

    assert time.monotonic() - started < 5
