"""`${VARIABLE}` in the text values of a config."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from core.config.yaml import Path, scalar
from core.errors import Problem

_REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)\{|\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?)")

# What stands here is a password more often than not, and one made of digits must not become a number.
_ALWAYS_TEXT: Path = ("backend", "cache_credentials")


def expand(data: Any, environment: Mapping[str, str]) -> tuple[Any, list[tuple[Path, Problem]]]:
    """`data` with `${NAME}` and `${NAME:-default}` replaced in its values, and what could not be.

    A value that is one reference and nothing else is read as the YAML scalar it stands for, so that
    `num_workers: ${N}` is a number. `$${` is a literal `${`.
    """
    problems: list[tuple[Path, Problem]] = []

    def walk(value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [walk(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        return text(value, path) if isinstance(value, str) and "${" in value else value

    def text(value: str, path: Path) -> Any:
        def replacement(match: re.Match[str]) -> str:
            if match["escaped"]:
                return "${"
            if not match["name"]:
                message = "`${` is not followed by the name of a variable and `}`"
                problems.append((path, Problem(message=message, hint="write $${ for the characters themselves")))
                return ""
            found: str | None = environment.get(match["name"], match["default"])
            if found is None:
                message = f"environment variable {match['name']} is not set"
                hint = f"set it, or write ${{{match['name']}:-default}}"
                problems.append((path, Problem(message=message, hint=hint)))
                return ""
            return found

        expanded = _REFERENCE.sub(replacement, value)
        only = _REFERENCE.fullmatch(value)
        typed = only and only["name"] and path[: len(_ALWAYS_TEXT)] != _ALWAYS_TEXT
        return scalar(expanded) if typed else expanded

    return walk(data, ()), problems


def escaped(text: str) -> str:
    """`text` such that `expand` gives it back."""
    return text.replace("${", "$${")
