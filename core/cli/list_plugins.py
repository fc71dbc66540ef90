"""Show the processors, strategies and loaders that are installed, and why one cannot be used."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import attrs

from core.registry import Record, plugins

SCHEMA = 1
"""Version of the JSON: raised when a key changes its meaning or goes, not when one is added."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    records = plugins()
    if args.json:
        print(json.dumps({"schema": SCHEMA, "plugins": list(map(as_json, records))}, indent=2))
        return 0
    for line in _table(records):
        print(line)
    if args.verbose:
        for record in records:
            print("\n" + "\n".join(_details(record)))
    return 0


def as_json(record: Record) -> dict[str, Any]:
    """A record in plain types; without a spec the parts that come from it are null or empty."""
    spec = record.spec
    return {
        "kind": record.kind,
        "name": record.name,
        "status": record.status,
        "reason": record.reason,
        "summary": record.summary,
        "distribution": record.dist,
        "version": record.version,
        "entry_point": record.entry_point or None,
        "implementation": spec.implementation if spec else None,
        "needs": list(spec.needs) if spec else [],
        "options": list(_options(spec.options)) if spec else [],
    }


def _options(section: type[attrs.AttrsInstance]) -> Iterator[dict[str, Any]]:
    for field in attrs.fields(section):
        yield {
            "name": field.name,
            "type": _type_name(field.type),
            "required": field.default is attrs.NOTHING,
            "default": _plain(field.default),
            "doc": field.metadata.get("doc", ""),
        }


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, str):  # the plugin postpones its annotations
        return annotation
    return annotation.__name__ if type(annotation) is type else str(annotation)


def _plain(default: Any) -> Any:
    if default is attrs.NOTHING:
        return None
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # the stub declares a function
        default = None if default.takes_self else default.factory()
    return (
        default
        if isinstance(default, bool | int | float | str | None)
        else json.loads(json.dumps(default, default=repr))
    )


def _table(records: tuple[Record, ...]) -> Iterator[str]:
    rows = [("KIND", "NAME", "STATUS", "DISTRIBUTION", "")]
    rows += [(r.kind or "-", r.name, r.status, f"{r.dist} {r.version}", r.reason or r.summary) for r in records]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        *cells, last = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([*cells, last.rstrip()]).rstrip()


def _details(record: Record) -> Iterator[str]:
    facts = as_json(record)
    yield f"{record.kind or 'plugin'} {record.name}: {record.status}" + (f" ({record.reason})" if record.reason else "")
    for key in ("summary", "entry_point", "implementation"):
        if facts[key]:
            yield f"  {key.replace('_', ' ')}: {facts[key]}"
    if facts["needs"]:
        yield f"  needs: {', '.join(facts['needs'])}"
    for option in facts["options"]:
        default = "required" if option["required"] else f"default {json.dumps(option['default'])}"
        yield f"  option {option['name']}: {option['type']}, {default}. {option['doc']}".rstrip()
