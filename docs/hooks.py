"""The pages of reference, written from the code each time the site is built."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import attrs
from mkdocs.structure.files import File

import core
from core.cli import COMMANDS
from core.config.dump import choice_name
from core.config.introspection import choices_of, members, resolved_fields
from core.config.sections import Config


def on_files(files: Any, config: Any) -> Any:
    for name, page in {"config": config_page, "cli": cli_page, "python": python_page}.items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(page())))
    return files


def config_page() -> Iterator[str]:
    """Every key of a config, its type, default and meaning."""
    yield "# Config\n"
    yield "Every key, from the classes that read them, with the options of the plugins that core is developed with."
    yield "`core schema` writes the same for editors.\n"
    yield from _section("", Config, 2)


def _section(path: str, cls: type, level: int) -> Iterator[str]:
    if path:
        yield f"{'#' * min(level, 4)} `{path}`\n"
    yield f"{inspect.cleandoc(cls.__doc__ or '').splitlines()[0]}\n"
    fields = {name: field for name, field in resolved_fields(cls).items() if not field.metadata.get("extra")}
    if fields:
        yield "| key | type | default | |\n| --- | --- | --- | --- |"
    for name, field in fields.items():
        yield f"| `{name}` | {_type(field)} | {_default(field)} | {_cell(field.metadata.get('doc', ''))} |"
    yield ""
    for name, field in fields.items():
        under = f"{path}.{name}" if path else name
        choices = choices_of(field)
        if choices:
            for word, choice in choices.items():
                yield from _section(f"{under}: {{type: {word}}}", choice, level + 1)
        else:
            for nested in filter(attrs.has, _flat(field.type)):
                yield from _section(under, nested, level + 1)


def _flat(annotation: Any) -> Iterator[Any]:
    for member in members(annotation):
        yield getattr(member, "__args__", (member,))[0] if not isinstance(member, type) else member


def _type(field: Any) -> str:
    choices = choices_of(field)
    if choices:
        return "one of " + ", ".join(f"`{word}`" for word in choices)
    return _cell(_told(field.type))


def _told(annotation: Any) -> str:
    """An annotation as people read it."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in get_args(annotation))
    if len(members(annotation)) > 1:
        return " or ".join(map(_told, members(annotation)))
    if annotation is type(None):
        return "`null`"
    named = isinstance(annotation, type) and not get_args(annotation)
    return f"`{annotation.__name__ if named else str(annotation).replace('typing.', '')}`"


def _default(field: Any) -> str:
    if field.default is attrs.NOTHING:
        return "required"
    value = field.default
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # the stub declares a function
        if value.takes_self:
            return ""
        value = value.factory()
    if attrs.has(type(value)):
        return f"`{getattr(value, 'type', None) or choice_name(field, value)}`" if choices_of(field) else ""
    return f"`{json.dumps(value, default=str)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def cli_page() -> Iterator[str]:
    """The help of every command."""
    from core.cli import _Parser

    os.environ["COLUMNS"] = "100"
    yield "# Commands\n"
    yield "All of them know `--quiet` and `--verbose`. Exit status: 0; 2 where something given is wrong; 130 after"
    yield "Ctrl-C; 1 for everything else.\n"
    for name in COMMANDS:
        command = importlib.import_module(f"core.cli.{name.replace('-', '_')}")
        parser: argparse.ArgumentParser = _Parser(prog=f"core {name}", description=command.__doc__)
        command.add_arguments(parser)
        yield f"## core {name}\n\n```text\n{parser.format_help()}```\n"


def python_page() -> Iterator[str]:
    """What `core` exports."""
    yield "# Python\n"
    for name in core.__all__:
        value = getattr(core, name)
        yield f"## core.{name}\n"
        if inspect.ismodule(value):
            yield f"{inspect.cleandoc(value.__doc__ or '')}\n"
            for error in vars(value).values():
                if inspect.isclass(error) and error.__module__ == value.__name__:
                    yield f"- `{error.__name__}`: {inspect.cleandoc(error.__doc__ or '').splitlines()[0]}"
            yield ""
            continue
        yield from _documented(value)
        if inspect.isclass(value):
            for method, function in inspect.getmembers(value, callable):
                if not method.startswith("_") and method in vars(value):
                    yield f"### core.{name}.{method}\n"
                    yield from _documented(function)


def _documented(value: Any) -> Iterator[str]:
    if inspect.isroutine(value) or inspect.isclass(value):
        yield f"```text\n{value.__name__}{inspect.signature(value)}\n```\n"
    yield f"```text\n{inspect.cleandoc(value.__doc__ or '')}\n```\n"
