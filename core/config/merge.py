"""Laying one piece of a config over another: `--backend` over the file, features over defaults, `--set` over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from core.config.introspection import Field, resolved_fields, section_class, spelled_out
from core.config.wording import nearest
from core.config.yaml import Path
from core.errors import Problem


class NoSuchPlaceError(Exception):
    """A `--set` that leads nowhere."""

    def __init__(self, path: Path, problem: Problem) -> None:
        super().__init__(str(problem))
        self.path = path
        self.problem = problem


def merge(base: Any, over: Any, cls: type | None) -> Any:
    """`over` on top of `base`, key by key, both written as sections of class `cls`.

    Where `over` picks another `type` than `base`, the options of the old one go; siblings always stay.
    """
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    fields = resolved_fields(cls) if cls else {}
    result = dict(base)
    for key, value in over.items():
        result[key] = _merge_key(base[key], value, fields.get(key)) if key in base else value
    return result


def _merge_key(base: Any, over: Any, field: Field | None) -> Any:
    if field is None:
        return merge(base, over, None)
    base, over = spelled_out(field, base), spelled_out(field, over)
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    if "default_choice" in field.metadata:
        before = base.get("type", field.metadata["default_choice"])
        after = over.get("type", before)
        if before != after:
            base = {key: value for key, value in base.items() if key in _common_options(field)}
    return merge(base, over, section_class(field, over if "type" in over else base))


def _common_options(field: Field) -> set[str]:
    """What every plugin of a kind has, such as `parallelism`, outlives a change of plugin."""
    if kind := field.metadata.get("plugin"):
        from core.discovery import KINDS

        options: Any = attrs.fields_dict(KINDS[kind])["options"].default
        return set(resolved_fields(options))
    return set()


def assign(data: Any, steps: Sequence[str], value: Any, cls: type) -> tuple[Any, Path]:
    """`data` with `value` at `steps`, and the path there. Items of a list go by their `name` or their number.

    Raises:
        NoSuchPlaceError: a step leads into a list without such an item, or into a plain value.
    """
    return _assign(data, tuple(steps), value, cls, ())


def _assign(node: Any, steps: tuple[str, ...], value: Any, cls: type | None, path: Path) -> tuple[Any, Path]:
    step, rest = steps[0], steps[1:]
    if not isinstance(node, Mapping):
        message = "is not a section, so nothing can be set in it"
        raise NoSuchPlaceError(path, Problem(message=message, found=node))
    field = (resolved_fields(cls) if cls else {}).get(step)
    child = node.get(step)
    path = (*path, step)
    if not rest:
        return {**node, step: value}, path
    if field is not None:
        child = spelled_out(field, child)
    if isinstance(child, list):
        index = _position(child, rest[0], path)
        path = (*path, index)
        if len(rest) == 1:
            item: Any = value
        else:
            item, path = _assign(
                child[index], rest[1:], value, section_class(field, child[index]) if field else None, path
            )
        return {**node, step: [*child[:index], item, *child[index + 1 :]]}, path
    if child is None:
        child = {}
    if rest == ("type",) and field is not None and isinstance(child, Mapping):
        return {**node, step: _merge_key(child, {"type": value}, field)}, (*path, "type")
    child, path = _assign(child, rest, value, section_class(field, child) if field else None, path)
    return {**node, step: child}, path


def _position(items: list[Any], step: str, path: Path) -> int:
    names = [item.get("name") if isinstance(item, Mapping) else None for item in items]
    if step in names:
        return names.index(step)
    if step.isdecimal() and int(step) < len(items):
        return int(step)
    known = [name for name in names if isinstance(name, str)]
    expected = f"a number below {len(items)}" + (f", or {', '.join(known)}" if known else "")
    problem = Problem(message="there is no such item", expected=expected, hint=nearest(step, known))
    raise NoSuchPlaceError((*path, step), problem)
