"""Plain data to attrs classes: strict about types, and every mistake found in one pass.

cattrs walks the classes. What it would let through (`bool("false")`, `int(1.7)`, unknown keys) or report one at a
time, with the path lost (attrs validators), is replaced here.
"""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import (
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from core.config.fields import Selected
from core.config.introspection import Field, accepts_null, choices_of, members, resolved_fields, spelled_out
from core.config.wording import (
    PRIMITIVES,
    describe,
    hint_for,
    nearest,
    not_a_typo,
    one_of,
    reworded,
    unknown_key,
    unknown_type,
)
from core.config.yaml import Path
from core.errors import PluginError, Problem

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]


def structure(data: Any, cls: type[T]) -> tuple[T | None, list[tuple[Path, Problem]]]:
    """An instance of `cls`, or None and everything that is wrong with `data`, each with the path to it."""
    try:
        return _converter().structure(data, cls), []
    except _ERRORS as error:
        return None, list(_problems(error, (), cls))


class _InvalidError(ValueError):
    """A value that does not fit; `at` is the path from where the hook was called to what is wrong."""

    def __init__(self, problem: Problem, at: Path = ()) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.at = at


_ERRORS = (_InvalidError, ClassValidationError, IterableValidationError)


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    for primitive in PRIMITIVES:
        converter.register_structure_hook(primitive, _primitive)
    by_origin: dict[Any, Hook] = {
        Literal: _literal,
        tuple: functools.partial(_sequence, converter),
        list: functools.partial(_sequence, converter),
        dict: functools.partial(_mapping, converter),
        Union: functools.partial(_union, converter),
        types.UnionType: functools.partial(_union, converter),
    }
    for origin, hook in by_origin.items():
        converter.register_structure_hook_func(functools.partial(_has_origin, origin), hook)
    converter.register_structure_hook_func(functools.partial(operator.is_, Any), lambda value, _: value)
    converter.register_structure_hook_factory(attrs.has, functools.partial(_section_hook, converter))
    return converter


def _has_origin(origin: Any, annotation: Any) -> bool:
    return get_origin(annotation) is origin


def _primitive(value: Any, wanted: Any) -> Any:
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise _wrong_type(value, wanted)
    if isinstance(value, float) and not math.isfinite(value):
        raise _InvalidError(Problem(message="is not finite", found=value, expected=PRIMITIVES[float]))
    return value


def _literal(value: Any, wanted: Any) -> Any:
    names = get_args(wanted)
    if any(value == name and type(value) is type(name) for name in names):
        return value
    raise _InvalidError(
        Problem(message="unknown value", found=value, expected=describe(wanted), hint=nearest(value, names))
    )


def _sequence(converter: cattrs.Converter, value: Any, wanted: Any) -> Any:
    """Items of one type: any number of them, or as many as the annotation lists."""
    item, *rest = get_args(wanted)
    if rest and rest[0] is not Ellipsis and isinstance(value, (list, tuple)) and len(value) != 1 + len(rest):
        raise _InvalidError(Problem(message="wrong length", found=value, expected=describe(wanted)))
    return get_origin(wanted)(_each(value, wanted, lambda element: converter.structure(element, item)))


def _mapping(converter: cattrs.Converter, value: Any, wanted: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong_type(value, wanted)
    item = get_args(wanted)[1]
    keys = [str(key) for key in value]
    readers = [functools.partial(converter.structure, element, item) for element in value.values()]
    return dict(zip(keys, _collect(wanted, list(zip(keys, readers, strict=True))), strict=True))


def _union(converter: cattrs.Converter, value: Any, wanted: Any) -> Any:
    """Members of a union differ in kind (a mapping, text, null), so the value's kind says which one was meant."""
    for member in members(wanted):
        if _same_kind(value, member):
            return converter.structure(value, member)
    if len(others := [member for member in members(wanted) if member is not types.NoneType]) == 1:
        try:
            return converter.structure(value, others[0])
        except _InvalidError as error:
            raise _InvalidError(attrs.evolve(error.problem, expected=describe(wanted)), error.at) from None
    raise _wrong_type(value, wanted)


def _same_kind(value: Any, member: Any) -> bool:
    if member is Any:
        return True
    origin = get_origin(member) or member
    if origin is Literal:
        return value in get_args(member)
    if origin is dict or attrs.has(origin):
        return isinstance(value, Mapping)
    if origin in (tuple, list):
        return isinstance(value, (list, tuple))
    return type(value) is origin or (origin is float and type(value) is int)


def _section_hook(converter: cattrs.Converter, cls: type) -> Hook:
    fields = resolved_fields(cls)
    catch_all = next((name for name, field in fields.items() if field.metadata.get("extra")), None)
    known = set(fields) - {catch_all}
    overrides: dict[str, Any] = {
        name: override(struct_hook=_field_hook(converter, field)) for name, field in fields.items()
    }
    build: Hook = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **overrides)

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong_type(value, cls)
        if catch_all is not None:
            extra = {key: item for key, item in value.items() if key not in known}
            value = {key: item for key, item in value.items() if key in known} | {catch_all: extra}
        return build(value, cls)

    return hook


def _field_hook(converter: cattrs.Converter, field: Field) -> Hook:
    """How the value of one key is read: by its choices or its type, then by its validator."""
    annotation: Any = field.type

    def read(value: Any) -> Any:
        if "checked_as" in field.metadata:
            converter.structure(value, field.metadata["checked_as"]())
            return value
        if "default_choice" not in field.metadata:
            return converter.structure(spelled_out(field, value), annotation)
        if value is None and accepts_null(annotation):
            return None
        if get_origin(annotation) is tuple:
            return tuple(_each(value, annotation, lambda item: _item(converter, field, item)))
        return _choice(converter, field, value)

    def hook(value: Any, _: Any) -> Any:
        result = read(value)
        if field.validator is not None:
            try:
                field.validator(None, field, result)
            except (ValueError, TypeError) as error:
                raise _InvalidError(Problem(message=reworded(error), found=value)) from None
        return result

    def silent_hook(value: Any, wanted: Any) -> Any:
        try:
            return hook(value, wanted)
        except _ERRORS:
            # The chain would hold the value too, and a debugger or a log would show it.
            problem = Problem(message="cannot be read; its value is not shown", expected=describe(annotation))
            raise _InvalidError(problem) from None

    return silent_hook if field.metadata.get("secret") else hook


def _item(converter: cattrs.Converter, field: Field, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _InvalidError(Problem(message="wrong type", found=value, expected="a mapping with `name` and `type`"))
    return _choice(converter, field, value)


def _choice(converter: cattrs.Converter, field: Field, value: Any) -> Any:
    """`dense`, or `{type: dense, dropout: 0.1}`."""
    at: Path = () if isinstance(value, str) else ("type",)
    value = spelled_out(field, value)
    if not isinstance(value, Mapping):
        expected = f"a name or a mapping{' or null' if accepts_null(field.type) else ''}"
        raise _InvalidError(Problem(message="wrong type", found=value, expected=expected, hint=hint_for(value, dict)))
    name = value.get("type", field.metadata["default_choice"])
    choices = choices_of(field) or {}
    kind = field.metadata.get("plugin")
    if name is None:
        raise _InvalidError(Problem(message="is missing", expected=one_of(choices)), ("type",))
    if not isinstance(name, str):
        raise _InvalidError(attrs.evolve(_wrong_type(name, str).problem, expected=one_of(choices)), at)
    if kind:
        _require_plugin(kind, name, at)
    elif name not in choices:
        raise _InvalidError(unknown_type(field, name, choices), at)
    cls = _options_class(kind, name, choices)
    options: Any = converter.structure({key: item for key, item in value.items() if key != "type"}, cls)
    return Selected(type=name, options=options) if kind else options


def _options_class(kind: Any, name: str, choices: Mapping[str, type]) -> type:
    if kind and name not in choices:  # `dist:name`
        from core.registry import registry

        return registry().spec(kind, name).options
    return choices[name]


def _require_plugin(kind: Any, name: str, at: Path) -> None:
    from core.registry import registry

    try:
        spec = registry().spec(kind, name)
    except PluginError as error:
        raise _InvalidError(attrs.evolve(error.problems[0], path=""), at) from None
    for record in registry().records:
        if record.spec is spec and record.status == "unavailable":
            message = f"{kind} {name!r} is unavailable"
            raise _InvalidError(Problem(message=message, hint=record.reason), at)


def _each(value: Any, wanted: Any, read: Callable[[Any], T]) -> list[T]:
    if not isinstance(value, (list, tuple)):
        raise _wrong_type(value, wanted)
    return _collect(wanted, [(index, functools.partial(read, item)) for index, item in enumerate(value)])


def _collect(wanted: Any, readers: Iterable[tuple[int | str, Callable[[], T]]]) -> list[T]:
    results: list[T] = []
    errors: list[Exception] = []
    for index, read in readers:
        try:
            results.append(read())
        except _ERRORS as error:
            error.add_note(IterableValidationNote(f"{index}", index, wanted))
            errors.append(error)
    if errors:
        raise IterableValidationError("items", errors, wanted)
    return results


def _problems(error: Exception, path: Path, cls: Any) -> Iterator[tuple[Path, Problem]]:
    """The leaves of a tree of cattrs errors."""
    if isinstance(error, (ClassValidationError, IterableValidationError)):
        noted, bare = error.group_exceptions()
        for inner, note in noted:
            step = note.index if isinstance(note, IterableValidationNote) else note.name
            yield from _problems(inner, (*path, step), error.cl)
        for inner in bare:
            yield from _problems(inner, path, error.cl)
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(map(str, error.extra_fields)):
            yield (*path, key), unknown_key(key, path, error.cl)
    elif isinstance(error, _InvalidError):
        yield (*path, *error.at), not_a_typo(error.problem, path)
    elif isinstance(error, KeyError):
        field = resolved_fields(cls)[str(path[-1])]
        yield path, Problem(message="is missing", expected=describe(field.type))
    elif isinstance(error, ValueError):  # of a section's __attrs_post_init__
        yield path, Problem(message=reworded(error))
    else:
        raise error


def _wrong_type(value: Any, wanted: Any) -> _InvalidError:
    return _InvalidError(
        Problem(message="wrong type", found=value, expected=describe(wanted), hint=hint_for(value, wanted))
    )
