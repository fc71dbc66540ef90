"""From a `Config` back to plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from core.config.environment import escaped
from core.config.fields import Selected
from core.config.introspection import Field, choices_of, resolved_fields
from core.config.sections import Config
from core.storage import Location, is_url

HIDDEN = "***"


def resolved(config: Config) -> dict[str, Any]:
    """`config` as plain data with every default written out. `load` makes an equal `Config` of it."""
    return _section(config, escaped, lambda value: value)


def redacted(config: Config) -> dict[str, Any]:
    """`resolved` with nothing secret in it: credentials, and what a URL holds before its host."""

    def shown(text: str) -> str:
        return escaped(str(Location(text)) if is_url(text) else text)

    return _section(config, shown, _hidden)


def model_config(config: Config) -> dict[str, Any]:
    """`resolved` without `backend`: what a saved model remembers, which runs anywhere."""
    return {key: value for key, value in resolved(config).items() if key != "backend"}


def _section(section: Any, text: Callable[[str], str], secret: Callable[[Any], Any]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return _section(value, text, secret) if attrs.has(type(value)) else value

    def written(field: Field, value: Any) -> Any:
        if field.metadata.get("secret"):
            return plain(secret(value))
        if isinstance(value, Selected):
            return {"type": value.type, **plain(value.options)}
        if "choices" not in field.metadata:
            return plain(value)
        if isinstance(value, tuple):
            return [{"type": choice_name(field, item), **plain(item)} for item in value]
        return None if value is None else {"type": choice_name(field, value), **plain(value)}

    result: dict[str, Any] = {}
    for name, field in resolved_fields(type(section)).items():
        value = getattr(section, name)
        result |= plain(value) if field.metadata.get("extra") else {name: written(field, value)}
    return result


def choice_name(field: Field, value: Any) -> str:
    """The `type` under which `value` is a choice of `field`."""
    return next(name for name, cls in (choices_of(field) or {}).items() if cls is type(value))


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _hidden(item) for key, item in value.items()}
    return value if value is None else HIDDEN
