"""What the classes of the config say about themselves."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, TypeAlias, Union, get_args, get_origin

import attrs

from core.config.fields import Choices

Field: TypeAlias = "attrs.Attribute[Any]"


def resolved_fields(cls: type) -> dict[str, Field]:
    """The fields of an attrs class by name, their annotations evaluated."""
    return {field.name: field for field in attrs.fields(attrs.resolve_types(cls))}


def choices_of(field: Field) -> Choices | None:
    """Name to class, where `field` is a choice, or several, among core's own classes or the plugins' options."""
    if kind := field.metadata.get("plugin"):
        from core.registry import registry

        return {name: spec.options for name, spec in registry().choices(kind).items()}
    choices = field.metadata.get("choices")
    return choices() if callable(choices) else choices


def spelled_out(field: Field, value: Any) -> Any:
    """`dense` as `{type: dense}`, where `field` takes a bare word for a mapping."""
    key = "type" if "default_choice" in field.metadata else field.metadata.get("short")
    return {key: value} if key and isinstance(value, str) else value


def section_class(field: Field, value: Any) -> type | None:
    """The class of what stands under a key (of an item, where it is a list), as far as `value` says which."""
    if "default_choice" in field.metadata:
        name = value.get("type", field.metadata["default_choice"]) if isinstance(value, Mapping) else None
        return (choices_of(field) or {}).get(name) if isinstance(name, str) else None
    return next((member for member in members(field.type) if attrs.has(member)), None)


def annotation(field: Field) -> Any:
    """The type of a field, evaluated by `resolved_fields`."""
    return field.type


def accepts_null(annotation: Any) -> bool:
    return types.NoneType in members(annotation)


def members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
