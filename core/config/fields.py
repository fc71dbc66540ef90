"""How a section of the config is declared: attrs classes whose fields carry their documentation and their choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

Check = Callable[[Any, "attrs.Attribute[Any]", Any], Any]
Choices = Mapping[str, type]

_MISSING: Any = attrs.NOTHING


@attrs.frozen(kw_only=True)
class Selected:
    """A plugin picked by the config: `strategy: ddp` or `strategy: {type: ddp, bucket_cap_mb: 25}`."""

    type: str
    options: Any


def setting(
    default: Any = _MISSING,
    *,
    doc: str,
    factory: Callable[[], Any] | None = None,
    check: Check | None = None,
    choices: Choices | Callable[[], Choices] | None = None,
    default_choice: str | None = None,
    plugin: str | None = None,
    short: str | None = None,
    checked_as: Callable[[], type] | None = None,
    extra: bool = False,
    secret: bool = False,
) -> Any:
    """A key of a section.

    Args:
        default: its value when the key is absent; without `default` and `factory` the key is required.
        doc: one sentence for `core schema` and the reference.
        factory: makes a default that is not a plain value.
        check: attrs validator; its ValueError becomes the message.
        choices: name to attrs class, where the value is a name, or a mapping with `type` and that class's keys. For
            a tuple field it applies to the items. A callable is read at each use.
        default_choice: the name assumed where a mapping has no `type`.
        plugin: `processor`, `strategy` or `loader`: choices are the installed plugins, the value is `Selected`.
        short: the key of the section that a bare word stands for.
        checked_as: a mapping that is kept as it was written, once this class has accepted it.
        extra: a `dict[str, Any]` that takes every key the section does not declare, to be passed on unchanged.
        secret: never shown: not in an error, a repr or a description of a run.
    """
    metadata: dict[str, Any] = {"doc": doc}
    if choices is not None:
        metadata |= {"choices": choices, "default_choice": default_choice}
    if plugin is not None:
        metadata |= {"plugin": plugin, "default_choice": default_choice}
    if short is not None:
        metadata["short"] = short
    if checked_as is not None:
        metadata["checked_as"] = checked_as
    metadata |= {key: True for key, given in (("extra", extra), ("secret", secret)) if given}
    if factory is not None:
        default = attrs.Factory(factory)
    return attrs.field(default=default, validator=check, repr=not secret, metadata=metadata)


positive: Check = attrs.validators.gt(0)
at_least_0: Check = attrs.validators.ge(0)
at_least_1: Check = attrs.validators.ge(1)
not_empty: Check = attrs.validators.min_len(1)
fraction: Check = attrs.validators.and_(attrs.validators.ge(0), attrs.validators.le(1))
dropout_rate: Check = attrs.validators.and_(attrs.validators.ge(0), attrs.validators.lt(1))


def optional(check: Check) -> Check:
    return attrs.validators.optional(check)
