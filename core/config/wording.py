"""How a mistake is put into words: what was expected, and the name that was probably meant."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from core.config import ludwig
from core.config.fields import Selected
from core.config.introspection import Field, choices_of, members, resolved_fields
from core.config.yaml import Path, scalar
from core.errors import Problem

PRIMITIVES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}
_COMPARISONS = {">=": "at least", ">": "greater than", "<=": "at most", "<": "less than"}


def describe(annotation: Any) -> str:
    """What may be written for a value of this type, in words."""
    if annotation in PRIMITIVES:
        return PRIMITIVES[annotation]
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return one_of(word for member in get_args(annotation) for word in _words(member))
    if origin is Literal:
        return one_of(get_args(annotation))
    if origin in (tuple, list):
        item, *rest = get_args(annotation)
        count = "" if not rest or rest[0] is Ellipsis else f"{1 + len(rest)} "
        plural = {int: "whole numbers", float: "numbers", str: "texts"}.get(item)
        return f"a list of {count}{plural}" if plural else "a list"
    if annotation is Selected:
        return "a name or a mapping"
    return "a value" if annotation is Any else "a mapping"


def _words(annotation: Any) -> tuple[Any, ...]:
    if annotation is bool:
        return ("true", "false")
    return get_args(annotation) if get_origin(annotation) is Literal else (describe(annotation),)


def one_of(names: Iterable[Any]) -> str:
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def nearest(name: Any, known: Iterable[Any]) -> str:
    close = difflib.get_close_matches(str(name), [str(word) for word in known], n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def hint_for(value: Any, wanted: Any) -> str:
    kinds = members(wanted)
    if value is None and (wanted is dict or attrs.has(wanted)):
        return "the section is empty: leave its name out too, or write {}"
    if isinstance(value, str):
        if bool in kinds and value.lower() in ("yes", "no", "on", "off"):
            return f"write {str(value.lower() in ('yes', 'on')).lower()}"
        if value == "auto":
            return "core chooses no value by trial; give one, or leave the key out for the default"
        if type(scalar(value)) in kinds:
            return "remove the quotes"
    if str in kinds and isinstance(value, (bool, int, float)):
        return "put it in quotes"
    return ""


def unknown_key(key: str, path: Path, cls: type) -> Problem:
    fields = resolved_fields(cls)
    names = [step for step in path if isinstance(step, str)]
    known = [name for name, field in fields.items() if not field.metadata.get("extra")]
    if not known:
        return Problem(message="unknown key", hint="there is nothing to set here")
    if key in ludwig.KEYS.get(names[-1] if names else "", ()):
        if key in ludwig.RENAMED:
            return Problem(message="unknown key", hint=f"it is called {ludwig.RENAMED[key]!r}")
        return Problem(message=ludwig.UNSUPPORTED)
    if homes := [name for name, field in fields.items() if any(key in resolved_fields(c) for c in _classes(field))]:
        return Problem(message="unknown key", hint=f"it belongs under {' or '.join(map(repr, homes))}")
    return Problem(message="unknown key", hint=nearest(key, known) or f"known: {', '.join(known)}")


def _classes(field: Field) -> list[type]:
    """The sections that may stand under a key."""
    if get_origin(field.type) is tuple:
        return []
    if choices := choices_of(field):
        return list(choices.values())
    return [member for member in members(field.type) if attrs.has(member) and member is not Selected]


def unknown_type(field: Field, name: str, choices: Mapping[str, type]) -> Problem:
    if name in ludwig.RENAMED and ludwig.RENAMED[name] in choices:
        hint = f"it is called {ludwig.RENAMED[name]!r}"
    elif name in ludwig.TYPES.get(field.name, ()):
        return Problem(message=ludwig.UNSUPPORTED, found=name, expected=one_of(choices))
    else:
        hint = nearest(name, choices)
    return Problem(message=f"unknown {_noun(field.name)}", found=name, expected=one_of(choices), hint=hint)


def _noun(key: str) -> str:
    return {"input_features": "feature type", "output_features": "type of output feature"}.get(key, key)


def not_a_typo(problem: Problem, path: Path) -> Problem:
    if path[-1:] == ("model_type",) and problem.found in ludwig.MODEL_TYPES:
        return attrs.evolve(problem, message=ludwig.UNSUPPORTED, hint="")
    return problem


def reworded(error: Exception) -> str:
    """The message of an attrs validator without the field's name and the value, which are given apart."""
    text = str(error.args[0]) if error.args else str(error)
    if match := re.fullmatch(r"'\w+' must be (>=|>|<=|<) (\S+): .*", text, re.DOTALL):
        return f"must be {_COMPARISONS[match[1]]} {match[2]}"
    if text.startswith("Length of "):  # the one length asked for is not to be empty
        return "is empty"
    return re.sub(r"^'\w+' ", "", text)
