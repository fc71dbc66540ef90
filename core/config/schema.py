"""JSON Schema of the config, for completion and checking in editors.

Draft 7, which is what YAML language servers read. There `$ref` hides its siblings, hence the `allOf` of one.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from core.config.dump import choice_name
from core.config.fields import Selected
from core.config.introspection import Field, accepts_null, annotation, choices_of, resolved_fields
from core.config.sections import Config

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", types.NoneType: "null"}
_BOUNDS = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}
_REFERENCE = r"\$\{"
_VARIABLE = {"type": "string", "pattern": _REFERENCE}
_Factory: Any = attrs.Factory


def schema() -> Schema:
    """The schema of a whole config, options of the installed plugins included."""
    definitions = _Definitions()
    top = definitions.section(Config)
    return {"$schema": DRAFT, "title": "core", **top, "definitions": definitions.done}


class _Definitions:
    """Each class once, however many keys hold it."""

    def __init__(self) -> None:
        self.done: dict[str, Schema] = {}
        self.names: dict[tuple[type, str | None], str] = {}

    def reference(self, cls: type, choice: str | None = None) -> Schema:
        if (cls, choice) not in self.names:
            name = f"{cls.__qualname__}.{choice}" if choice else cls.__qualname__
            if name in self.done:  # two plugins may well have a class `Options`
                name = f"{cls.__module__}.{name}"
            self.names[cls, choice] = name
            self.done[name] = {}
            self.done[name] = self.section(cls, choice)
        return {"$ref": f"#/definitions/{self.names[cls, choice]}"}

    def section(self, cls: type, choice: str | None = None) -> Schema:
        properties, required, open_ended = {}, [], False
        for name, field in resolved_fields(cls).items():
            if field.metadata.get("extra"):
                open_ended = True
                continue
            properties[name] = self.key(field)
            if field.default is attrs.NOTHING:
                required.append(name)
        if choice:
            properties = {"type": {"const": choice}, **properties}
        result: Schema = {"type": "object", "properties": properties, "additionalProperties": open_ended}
        if documentation := (cls.__doc__ or "").strip().partition("\n")[0]:
            result["description"] = documentation
        return result | ({"required": required} if required else {})

    def key(self, field: Field) -> Schema:
        value = self.value(field) | dict(_bounds(field.validator))
        if member := getattr(field.validator, "member_validator", None):
            value["items"] = value["items"] | dict(_bounds(member))
        if "$ref" in value:
            value = {"allOf": [value]}
        if doc := field.metadata.get("doc"):
            value["description"] = doc
        if (default := _default(field)) is not attrs.NOTHING:
            value["default"] = default
        return value

    def value(self, field: Field) -> Schema:
        if "checked_as" in field.metadata:
            return self.reference(field.metadata["checked_as"]())
        if "default_choice" in field.metadata:
            many = get_origin(field.type) is tuple
            choice = self.choice(field, named=not many)
            return {"type": "array", "items": choice} if many else choice
        if short := field.metadata.get("short"):
            section = annotation(field)
            return {"anyOf": [self.value(resolved_fields(section)[short]), self.reference(section)]}
        return self.annotated(field.type)

    def choice(self, field: Field, *, named: bool) -> Schema:
        choices = choices_of(field) or {}
        options: list[Schema] = []
        if named:  # a bare name will do where the class needs no key
            bare = [name for name, cls in choices.items() if not _needs_a_key(cls)]
            options += [{"enum": bare}, _VARIABLE]
        for name, cls in choices.items():
            option = self.reference(cls, name)
            if name != field.metadata["default_choice"]:
                option = {"allOf": [option], "required": ["type"]}
            options.append(option)
        if accepts_null(field.type):
            options.append({"type": "null"})
        return {"anyOf": options}

    def annotated(self, wanted: Any) -> Schema:
        if wanted is Any:
            return {}
        if wanted in _TYPES:
            return _scalars([wanted])
        if attrs.has(wanted):
            return self.reference(wanted)
        origin, arguments = get_origin(wanted), get_args(wanted)
        if origin is Literal:
            return {"anyOf": [{"enum": list(arguments)}, _VARIABLE]}
        if origin in (Union, types.UnionType):
            scalars = [member for member in arguments if member in _TYPES]
            others = [self.annotated(member) for member in arguments if member not in _TYPES]
            return {"anyOf": [*others, _scalars(scalars)]} if others else _scalars(scalars)
        if origin is dict:
            return {"type": "object", "additionalProperties": self.annotated(arguments[1])}
        array = {"type": "array", "items": self.annotated(arguments[0])}
        fixed = origin is tuple and arguments[-1] is not Ellipsis
        return array | ({"minItems": len(arguments), "maxItems": len(arguments)} if fixed else {})


def _needs_a_key(cls: type) -> bool:
    return any(field.default is attrs.NOTHING for field in attrs.fields(cls))


def _scalars(wanted: list[Any]) -> Schema:
    """Any of these types, or text that refers to an environment variable."""
    names = [_TYPES[member] for member in wanted]
    if str in wanted or wanted == [types.NoneType]:
        return {"type": names[0] if len(names) == 1 else names}
    return {"type": [*names, "string"], "pattern": _REFERENCE}


def _default(field: Field) -> Any:
    """The default as a config would write it; NOTHING where it is a section, whose keys say it themselves."""
    default = field.default.factory() if isinstance(field.default, _Factory) else field.default
    if isinstance(default, Selected):
        return default.type
    if isinstance(default, tuple):
        return list(default)
    if default is not attrs.NOTHING and attrs.has(type(default)):
        return choice_name(field, default) if "choices" in field.metadata else attrs.NOTHING
    return default


def _bounds(validator: Any) -> Iterator[tuple[str, Any]]:
    """What JSON Schema can say of an attrs validator."""
    for inner in (*getattr(validator, "_validators", ()), getattr(validator, "validator", None)):
        if inner is not None:
            yield from _bounds(inner)
    if hasattr(validator, "compare_op"):
        yield _BOUNDS[validator.compare_op], validator.bound
    if hasattr(validator, "min_length"):
        yield "minItems", validator.min_length
