from __future__ import annotations

from typing import Any, Literal

import attrs
import pytest

from core.config.fields import at_least_1, fraction, not_empty, setting
from core.config.structure import structure


@attrs.frozen(kw_only=True)
class Round:
    """A choice without keys."""


@attrs.frozen(kw_only=True)
class Square:
    side: int = setting(1, doc="Length.", check=at_least_1)


@attrs.frozen(kw_only=True)
class Sharp:
    edge: float = setting(doc="Needed.")


SHAPES = {"round": Round, "square": Square, "sharp": Sharp}


@attrs.frozen(kw_only=True)
class Open:
    known: int = setting(0, doc="Declared.")
    others: dict[str, Any] = setting(factory=dict, doc="The rest.", extra=True)


@attrs.frozen(kw_only=True)
class Pair:
    low: int = setting(0, doc="Low.")
    high: int = setting(1, doc="High.")

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@attrs.frozen(kw_only=True)
class Everything:
    number: float = setting(0.5, doc="A number.", check=fraction)
    count: int | None = setting(None, doc="Maybe a number.")
    flag: bool = setting(False, doc="A flag.")
    text: str = setting("", doc="Text.")
    word: Literal["one", "two"] | None = setting("one", doc="One of two.")
    sizes: tuple[int, ...] = setting((1,), doc="Numbers.")
    limits: tuple[float, float] | None = setting(None, doc="Two numbers.")
    resources: dict[str, float] = setting(factory=dict, doc="Numbers by name.")
    place: dict[str, Any] | str | None = setting(None, doc="A mapping or text.")
    shape: Round | Square | Sharp | None = setting(factory=Round, doc="A.", choices=SHAPES, default_choice="round")
    shapes: tuple[Any, ...] = setting((), doc="Several.", choices=lambda: SHAPES)
    pair: Pair = setting(factory=Pair, doc="A section.")
    rest: Open = setting(factory=Open, doc="An open section.")
    password: dict[str, str] | None = setting(None, doc="Secret.", secret=True)


@attrs.frozen(kw_only=True)
class Required:
    name: str = setting(doc="Needed.")
    items: tuple[str, ...] = setting(doc="Needed.", check=not_empty)


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        ("number", 1, 1.0),
        ("count", None, None),
        ("count", 3, 3),
        ("word", "two", "two"),
        ("word", None, None),
        ("sizes", [2, 3], (2, 3)),
        ("limits", [0, 1.5], (0.0, 1.5)),
        ("resources", {"CPU": 2}, {"CPU": 2.0}),
        ("place", {"s3": {"key": [1, None]}}, {"s3": {"key": [1, None]}}),
        ("place", "file.json", "file.json"),
        ("shape", "round", Round()),
        ("shape", {}, Round()),
        ("shape", {"type": "square", "side": 2}, Square(side=2)),
        ("shape", None, None),
        ("shapes", [{"type": "round"}, {"type": "sharp", "edge": 1}], (Round(), Sharp(edge=1.0))),
        ("rest", {"known": 1, "any": {"thing": [1]}}, Open(known=1, others={"any": {"thing": [1]}})),
    ],
)
def test_values_that_fit(key: str, written: object, read: object) -> None:
    result, problems = structure({key: written}, Everything)

    assert problems == []
    assert getattr(result, key) == read


@pytest.mark.parametrize(
    ("key", "written", "path", "text"),
    [
        ("number", "0.5", "number", "found '0.5', expected a number)\n    remove the quotes"),
        ("number", True, "number", "wrong type (found True, expected a number)"),
        ("number", float("nan"), "number", "is not finite"),
        ("number", 1.5, "number", "must be at most 1 (found 1.5)"),
        ("count", 1.0, "count", "wrong type (found 1.0, expected a whole number or null)"),
        ("count", "auto", "count", "core chooses no value by trial"),
        ("flag", "false", "flag", "remove the quotes"),
        ("flag", "off", "flag", "write false"),
        ("flag", 0, "flag", "wrong type (found 0, expected true or false)"),
        ("text", 5, "text", "put it in quotes"),
        ("word", "three", "word", "unknown value (found 'three', expected one, two or null)"),
        ("word", "tow", "word", "did you mean 'two'?"),
        ("word", True, "word", "unknown value"),
        ("sizes", "12", "sizes", "expected a list of whole numbers"),
        ("sizes", [1, "2"], "sizes.1", "remove the quotes"),
        ("limits", [1], "limits", "wrong length (found [1], expected a list of 2 numbers)"),
        ("resources", [1], "resources", "expected a mapping"),
        ("resources", {"CPU": "2"}, "resources.CPU", "expected a number"),
        ("place", 5, "place", "expected a mapping, text or null"),
        ("shape", "squre", "shape", "did you mean 'square'?"),
        ("shape", {"type": "oval"}, "shape.type", "unknown shape (found 'oval', expected round, square or sharp)"),
        ("shape", {"type": 3}, "shape.type", "wrong type (found 3"),
        ("shape", 3, "shape", "expected a name or a mapping or null"),
        ("shape", "sharp", "shape.edge", "is missing (expected a number)"),
        ("shape", {"type": "square", "side": 0}, "shape.side", "must be at least 1 (found 0)"),
        ("shape", {"type": "square", "size": 0}, "shape.size", "did you mean 'side'?"),
        ("shape", {"type": "round", "side": 1}, "shape.side", "nothing to set"),
        ("shapes", [{"side": 1}], "shapes.0.type", "is missing (expected round, square or sharp)"),
        ("shapes", ["round"], "shapes.0", "wrong type (found 'round'"),
        ("shapes", {"type": "round"}, "shapes", "expected a list"),
        ("pair", {"low": 2}, "pair", "low is above high"),
        ("pair", None, "pair", "the section is empty"),
        ("pair", [], "pair", "expected a mapping"),
        ("rest", {"known": "1"}, "rest.known", "remove the quotes"),
        ("high", 1, "high", "it belongs under 'pair'"),
        ("side", 1, "side", "it belongs under 'shape'"),
        ("nmber", 1, "nmber", "unknown key\n    did you mean 'number'?"),
        ("xyz", 1, "xyz", "known: number, count"),
    ],
)
def test_a_value_that_does_not_fit(key: str, written: object, path: str, text: str) -> None:
    result, [(where, problem)] = structure({key: written}, Everything)

    assert result is None
    assert ".".join(map(str, where)) == path
    assert text in str(problem)


def test_all_mistakes_are_found_in_one_pass() -> None:
    data = {
        "number": "a",
        "count": 1.5,
        "shape": {"type": "square", "side": 0, "x": 1},
        "sizes": ["a", 1, None],
        "y": 1,
    }

    _, problems = structure(data, Everything)

    assert {".".join(map(str, path)) for path, _ in problems} == {
        *("number", "count", "shape.side", "shape.x", "sizes.0", "sizes.2", "y"),
    }


def test_what_is_missing_and_what_is_empty() -> None:
    _, problems = structure({"items": []}, Required)

    assert {path[0]: str(problem) for path, problem in problems} == {
        "name": "is missing (expected text)",
        "items": "is empty (found [])",
    }


@pytest.mark.parametrize("written", ["hunter2", {"key": {"deep": "hunter2"}}, ["hunter2"]])
def test_a_secret_is_not_shown(written: object) -> None:
    _, [(path, problem)] = structure({"password": written}, Everything)

    assert path == ("password",)
    assert "hunter2" not in repr(problem)
