"""Plain data to attrs classes: strict about types, and every mistake found in one pass.

cattrs walks the classes. What it would let through (`bool("false")`, `int(1.7)`, unknown keys) or report one at a
time, with the path lost (attrs validators), is replaced here.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
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

from core.config import ludwig
from core.config.fields import Selected, choices_of, spelled_out
from core.config.yaml import Path
from core.errors import PluginError, Problem

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]

_PRIMITIVES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}
_COMPARISONS = {">=": "at least", ">": "greater than", "<=": "at most", "<": "less than"}


def structure(data: Any, cls: type[T]) -> tuple[T | None, list[tuple[Path, Problem]]]:
    """An instance of `cls`, or None and everything that is wrong with `data`, each with the path to it."""
    try:
        return _converter().structure(data, cls), []
    except (_Invalid, ClassValidationError) as error:
        return None, list(_problems(error, (), cls))


def resolved_fields(cls: type) -> dict[str, attrs.Attribute[Any]]:
    """The fields of an attrs class by name, their annotations evaluated."""
    return {field.name: field for field in attrs.fields(attrs.resolve_types(cls))}


def section_class(field: attrs.Attribute[Any], value: Any) -> type | None:
    """The class of what stands under a key (of an item, where it is a list), as far as `value` says which."""
    if "default_choice" in field.metadata:
        name = value.get("type", field.metadata["default_choice"]) if isinstance(value, Mapping) else None
        return (choices_of(field) or {}).get(name) if isinstance(name, str) else None
    return next((member for member in _members(field.type) if attrs.has(member)), None)


def accepts_null(annotation: Any) -> bool:
    return types.NoneType in _members(annotation)


class _Invalid(ValueError):
    """A value that does not fit; `at` is the path from where the hook was called to what is wrong."""

    def __init__(self, problem: Problem, at: Path = ()) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.at = at


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    for primitive in _PRIMITIVES:
        converter.register_structure_hook(primitive, _primitive)
    converter.register_structure_hook_func(lambda t: t is Any, lambda value, _: value)
    converter.register_structure_hook_func(lambda t: get_origin(t) is Literal, _literal)
    converter.register_structure_hook_func(
        lambda t: get_origin(t) in (tuple, list), functools.partial(_sequence, converter)
    )
    converter.register_structure_hook_func(lambda t: get_origin(t) is dict, functools.partial(_mapping, converter))
    converter.register_structure_hook_func(
        lambda t: get_origin(t) in (Union, types.UnionType), functools.partial(_union, converter)
    )
    converter.register_structure_hook_factory(attrs.has, functools.partial(_section_hook, converter))
    return converter


def _primitive(value: Any, wanted: type) -> Any:
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise _wrong_type(value, wanted)
    if wanted is float and not math.isfinite(value):
        raise _Invalid(Problem(message="is not finite", found=value, expected=_PRIMITIVES[float]))
    return value


def _literal(value: Any, wanted: Any) -> Any:
    names = get_args(wanted)
    if any(value == name and type(value) is type(name) for name in names):
        return value
    raise _Invalid(Problem(message="unknown value", found=value, expected=describe(wanted), hint=nearest(value, names)))


def _sequence(converter: cattrs.Converter, value: Any, wanted: Any) -> Any:
    item = get_args(wanted)[0]
    return get_origin(wanted)(_each(value, wanted, lambda element: converter.structure(element, item)))


def _mapping(converter: cattrs.Converter, value: Any, wanted: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong_type(value, wanted)
    item = get_args(wanted)[1]
    pairs = [(str(key), element) for key, element in value.items()]
    return dict(
        _collect(wanted, [(key, functools.partial(_pair, converter, item, key, element)) for key, element in pairs])
    )


def _pair(converter: cattrs.Converter, item: Any, key: str, element: Any) -> tuple[str, Any]:
    return key, converter.structure(element, item)


def _union(converter: cattrs.Converter, value: Any, wanted: Any) -> Any:
    """Members of a union differ in kind (a mapping, text, null), so the value's kind says which one was meant."""
    for member in _members(wanted):
        if _same_kind(value, member):
            return converter.structure(value, member)
    if len(others := [member for member in _members(wanted) if member is not types.NoneType]) == 1:
        try:
            return converter.structure(value, others[0])
        except _Invalid as error:
            raise _Invalid(attrs.evolve(error.problem, expected=describe(wanted)), error.at) from None
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
    build = make_dict_structure_fn(
        cls,
        converter,
        _cattrs_forbid_extra_keys=True,
        _cattrs_detailed_validation=True,
        _cattrs_use_linecache=False,
        **{name: override(struct_hook=_field_hook(converter, field)) for name, field in fields.items()},
    )

    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong_type(value, cls)
        if catch_all is not None:
            extra = {key: item for key, item in value.items() if key not in known}
            value = {key: item for key, item in value.items() if key in known} | {catch_all: extra}
        return build(value, cls)

    return hook


def _field_hook(converter: cattrs.Converter, field: attrs.Attribute[Any]) -> Hook:
    """How the value of one key is read: by its choices or its type, then by its validator."""

    def read(value: Any) -> Any:
        if "checked_as" in field.metadata:
            converter.structure(value, field.metadata["checked_as"]())
            return value
        if "default_choice" not in field.metadata:
            return converter.structure(spelled_out(field, value), field.type)
        if value is None and accepts_null(field.type):
            return None
        if get_origin(field.type) is tuple:
            return tuple(_each(value, field.type, lambda item: _item(converter, field, item)))
        return _choice(converter, field, value)

    def hook(value: Any, _: Any) -> Any:
        result = read(value)
        if field.validator is not None:
            try:
                field.validator(None, field, result)
            except (ValueError, TypeError) as error:
                raise _Invalid(Problem(message=_reworded(error), found=value)) from None
        return result

    def silent_hook(value: Any, wanted: Any) -> Any:
        try:
            return hook(value, wanted)
        except (_Invalid, ClassValidationError, IterableValidationError):
            # The chain would hold the value too, and a debugger or a log would show it.
            problem = Problem(message="cannot be read; its value is not shown", expected=describe(field.type))
            raise _Invalid(problem) from None

    return silent_hook if field.metadata.get("secret") else hook


def _item(converter: cattrs.Converter, field: attrs.Attribute[Any], value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _Invalid(Problem(message="wrong type", found=value, expected="a mapping with `name` and `type`"))
    return _choice(converter, field, value)


def _choice(converter: cattrs.Converter, field: attrs.Attribute[Any], value: Any) -> Any:
    """`dense`, or `{type: dense, dropout: 0.1}`."""
    at: Path = () if isinstance(value, str) else ("type",)
    value = spelled_out(field, value)
    if not isinstance(value, Mapping):
        expected = f"a name or a mapping{' or null' if accepts_null(field.type) else ''}"
        raise _Invalid(Problem(message="wrong type", found=value, expected=expected, hint=_hint(value, dict)))
    name = value.get("type", field.metadata["default_choice"])
    choices = choices_of(field) or {}
    kind = field.metadata.get("plugin")
    if name is None:
        raise _Invalid(Problem(message="is missing", expected=_one_of(choices)), ("type",))
    if not isinstance(name, str):
        raise _Invalid(attrs.evolve(_wrong_type(name, str).problem, expected=_one_of(choices)), at)
    if kind:
        _require_plugin(kind, name, at)
    elif name not in choices:
        raise _Invalid(_unknown_type(field, name, choices), at)
    options = converter.structure(
        {key: item for key, item in value.items() if key != "type"}, _options_class(kind, name, choices)
    )
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
        raise _Invalid(attrs.evolve(error.problems[0], path=""), at) from None
    for record in registry().records:
        if record.spec is spec and record.status == "unavailable":
            message = f"{kind} {name!r} is unavailable"
            raise _Invalid(Problem(message=message, hint=record.reason), at)


def _unknown_type(field: attrs.Attribute[Any], name: str, choices: Mapping[str, type]) -> Problem:
    if name in ludwig.RENAMED and ludwig.RENAMED[name] in choices:
        hint = f"it is called {ludwig.RENAMED[name]!r}"
    elif name in ludwig.TYPES.get(field.name, ()):
        return Problem(message=ludwig.UNSUPPORTED, found=name, expected=_one_of(choices))
    else:
        hint = nearest(name, choices)
    return Problem(message=f"unknown {_noun(field.name)}", found=name, expected=_one_of(choices), hint=hint)


def _noun(key: str) -> str:
    return {"input_features": "feature type", "output_features": "type of output feature"}.get(key, key)


def _each(value: Any, wanted: Any, read: Callable[[Any], T]) -> list[T]:
    if not isinstance(value, (list, tuple)):
        raise _wrong_type(value, wanted)
    return _collect(wanted, [(index, functools.partial(read, item)) for index, item in enumerate(value)])


def _collect(wanted: Any, readers: Iterable[tuple[int | str, Callable[[], T]]]) -> list[T]:
    results, errors = [], []
    for index, read in readers:
        try:
            results.append(read())
        except (_Invalid, ClassValidationError, IterableValidationError) as error:
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
            yield (*path, key), _unknown_key(key, path, error.cl)
    elif isinstance(error, _Invalid):
        yield (*path, *error.at), _not_a_typo(error.problem, path)
    elif isinstance(error, KeyError):
        field = resolved_fields(cls)[str(path[-1])]
        yield path, Problem(message="is missing", expected=describe(field.type))
    elif isinstance(error, ValueError):  # of a section's __attrs_post_init__
        yield path, Problem(message=_reworded(error))
    else:
        raise error


def _not_a_typo(problem: Problem, path: Path) -> Problem:
    if path[-1:] == ("model_type",) and problem.found in ludwig.MODEL_TYPES:
        return attrs.evolve(problem, message=ludwig.UNSUPPORTED, hint="")
    return problem


def _unknown_key(key: str, path: Path, cls: type) -> Problem:
    fields = resolved_fields(cls)
    names = [step for step in path if isinstance(step, str)]
    known = [name for name, field in fields.items() if not field.metadata.get("extra")]
    if not known:
        return Problem(message="unknown key", hint="there is nothing to set here")
    if key in ludwig.KEYS.get(names[-1] if names else "", ()):
        hint = f"it is called {ludwig.RENAMED[key]!r}" if key in ludwig.RENAMED else ""
        return Problem(message=ludwig.UNSUPPORTED, hint=hint)
    if homes := [name for name, field in fields.items() if any(key in resolved_fields(c) for c in _classes(field))]:
        return Problem(message="unknown key", hint=f"it belongs under {' or '.join(map(repr, homes))}")
    return Problem(message="unknown key", hint=nearest(key, known) or f"known: {', '.join(known)}")


def _classes(field: attrs.Attribute[Any]) -> list[type]:
    """The sections that may stand under a key."""
    if get_origin(field.type) is tuple:
        return []
    if choices := choices_of(field):
        return list(choices.values())
    return [member for member in _members(field.type) if attrs.has(member) and member is not Selected]


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _wrong_type(value: Any, wanted: Any) -> _Invalid:
    return _Invalid(Problem(message="wrong type", found=value, expected=describe(wanted), hint=_hint(value, wanted)))


def _hint(value: Any, wanted: Any) -> str:
    members = _members(wanted)
    if value is None and (wanted is dict or attrs.has(wanted)):
        return "the section is empty: leave its name out too, or write {}"
    if isinstance(value, str):
        if bool in members and value.lower() in ("yes", "no", "on", "off"):
            return f"write {str(value.lower() in ('yes', 'on')).lower()}"
        if value == "auto":
            return "core chooses no value by trial; give one, or leave the key out for the default"
        if {int, float, bool} & set(members):
            from core.config.yaml import scalar

            if type(scalar(value)) in members:
                return "remove the quotes"
    if str in members and isinstance(value, (bool, int, float)):
        return "put it in quotes"
    return ""


def describe(annotation: Any) -> str:
    """What may be written for a value of this type, in words."""
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _one_of(word for member in get_args(annotation) for word in _words(member))
    if origin is Literal:
        return _one_of(get_args(annotation))
    if origin in (tuple, list):
        item = get_args(annotation)[0]
        plural = {int: "whole numbers", float: "numbers", str: "texts"}.get(item)
        return f"a list of {plural}" if plural else "a list"
    if annotation is Selected:
        return "a name or a mapping"
    return "a value" if annotation is Any else "a mapping"


def _words(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else (describe(annotation),)


def nearest(name: Any, known: Iterable[Any]) -> str:
    close = difflib.get_close_matches(str(name), [str(word) for word in known], n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _one_of(names: Iterable[Any]) -> str:
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _reworded(error: Exception) -> str:
    """The message of an attrs validator without the field's name and the value, which are given apart."""
    text = str(error.args[0]) if error.args else str(error)
    if match := re.fullmatch(r"'\w+' must be (>=|>|<=|<) (\S+): .*", text, re.DOTALL):
        return f"must be {_COMPARISONS[match[1]]} {match[2]}"
    if text.startswith("Length of "):  # the one length asked for is not to be empty
        return "is empty"
    return re.sub(r"^'\w+' ", "", text)
