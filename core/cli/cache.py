"""List, show and prune what is kept of processed data.

`list` shows the entries, `show KEY` one of them, its checksums compared. `prune` removes what nobody can use any more,
which is damaged entries and what interrupted writers left, then entries by age and size, the oldest first. Nothing that
a writer is at work on is removed. A run that still reads an entry fails when it goes.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from core.cli.console import byte_count
from core.errors import UserError

if TYPE_CHECKING:
    from core.data.pruning import Entry, Removal
    from core.storage import Location

SCHEMA = 1
"""Version of the JSON: raised when a key changes its meaning or goes, not when one is added."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    unit: base**power
    for base, units in ((1000, ("B", "KB", "MB", "GB", "TB")), (1024, ("", "KiB", "MiB", "GiB", "TiB")))
    for power, unit in enumerate(units)
    if unit
}


def age(text: str) -> float:
    """Seconds in ``30d``, ``12h``, ``1.5w``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text)
    if not found or found[2] not in _SECONDS:
        raise argparse.ArgumentTypeError(f"must be a number and one of {', '.join(_SECONDS)}, as in 30d, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def size(text: str) -> int:
    """Bytes in ``10GB`` (thousands) or ``10GiB`` (of 1024)."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text)
    if not found or found[2] not in _BYTES:
        raise argparse.ArgumentTypeError(f"must be a number and one of {', '.join(_BYTES)}, as in 10GB, not {text!r}")
    return int(float(found[1]) * _BYTES[found[2]])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list", "show", "prune"], help="what to do")
    parser.add_argument("key", nargs="?", metavar="KEY", help="entry to show, or the beginning of its key")
    parser.add_argument("--cache-dir", metavar="URL", help="as backend.cache_dir; by default the places `core` chooses")
    parser.add_argument("--cache-credentials", metavar="FILE", help="as backend.cache_credentials: a JSON file")
    parser.add_argument("--dataset", metavar="DATA", help="look beside this dataset, not in the working directory")
    parser.add_argument("--older-than", type=age, metavar="AGE", help="prune entries written longer ago, as 30d or 12h")
    parser.add_argument("--max-size", type=size, metavar="SIZE", help="prune until all take no more, as 10GB or 512MiB")
    parser.add_argument("--dry-run", action="store_true", help="only say what prune would remove")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from core.data.pruning import entries_in

    _refuse_what_does_not_apply(args)
    entries = [entry for folder in _folders(args) for entry in entries_in(folder)]
    if args.action == "show":
        _show(_named(entries, args.key), args)
    elif args.action == "prune":
        _prune(entries, args)
    elif args.json:
        print(json.dumps({"schema": SCHEMA, "entries": list(map(as_json, entries))}, indent=2))
    else:
        _list(entries, _folders(args))
    return 0


def _refuse_what_does_not_apply(args: argparse.Namespace) -> None:
    if (args.action == "show") != (args.key is not None):
        what = "needs the KEY of an entry" if args.action == "show" else "takes no KEY"
        raise UserError(f"`core cache {args.action}` {what}", hint="`core cache list` shows the keys")
    given = {"--older-than": args.older_than, "--max-size": args.max_size, "--dry-run": args.dry_run or None}
    if args.action != "prune" and (wrong := [option for option, value in given.items() if value is not None]):
        raise UserError(f"{wrong[0]} belongs to `core cache prune`")
    if args.cache_dir is not None and args.dataset is not None:
        raise UserError("--cache-dir and --dataset exclude each other", hint="Give one of them.")


def _folders(args: argparse.Namespace) -> list[Location]:
    """Where entries may lie."""
    from core.data.cache import CacheOptions, folders, read_credentials
    from core.data.sources import open_source
    from core.storage import Location

    credentials = read_credentials(args.cache_credentials) if args.cache_credentials else {}
    options = CacheOptions(directory=args.cache_dir, credentials=credentials)
    beside = Location(".").absolute() if args.dataset is None else open_source(args.dataset).location
    return [folder.absolute() for folder in folders(options, beside)]


def _named(entries: list[Entry], key: str) -> Entry:
    from core.data.pruning import entry_at

    found = [entry for entry in entries if entry.key.startswith(key)]
    if not found:
        raise UserError("there is no such entry", path="KEY", found=key, hint="`core cache list` shows the keys")
    if len({entry.key for entry in found}) > 1:
        raise UserError("several entries begin so", path="KEY", found=key, hint=", ".join(entry.key for entry in found))
    return entry_at(found[0].location, read=True)


def as_json(entry: Entry) -> dict[str, Any]:
    """An entry in plain types."""
    return {
        "key": entry.key,
        "url": str(entry.location),
        "state": entry.state,
        "damage": entry.damage,
        "written": None if entry.begun is None else datetime.fromtimestamp(entry.begun, UTC).isoformat(),
        "age_seconds": None if entry.begun is None else max(0, int(time.time()) - entry.begun),
        "bytes": entry.size,
        "rows": entry.rows,
        "features": entry.features,
        "dead_generations": sorted(entry.dead),
    }


def _list(entries: list[Entry], folders: list[Location]) -> None:
    if not entries:
        print(f"nothing is kept in {' or '.join(str(folder) for folder in folders)}")
        return
    for folder in dict.fromkeys(str(entry.location.parent) for entry in entries):
        print(folder)
        rows: list[tuple[str, ...]] = [("KEY", "AGE", "SIZE", "STATE", "ROWS", "FEATURES")]
        rows += [_row(entry) for entry in entries if str(entry.location.parent) == folder]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"{len(entries)} entries, {byte_count(sum(entry.size for entry in entries))}")


def _row(entry: Entry) -> tuple[str, ...]:
    rows = "/".join(f"{count:,}" for count in entry.rows.values())
    return entry.key, _age(entry), byte_count(entry.size), entry.state, rows, ", ".join(entry.features)


def _show(entry: Entry, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps({"schema": SCHEMA} | as_json(entry), indent=2))
        return
    lines = {
        "key": entry.key,
        "place": str(entry.location),
        "state": entry.state + (f" ({entry.damage})" if entry.damage else ""),
        "age": _age(entry),
        "size": byte_count(entry.size),
        "rows": ", ".join(f"{count:,} {split}" for split, count in entry.rows.items()),
        "features": ", ".join(f"{name} ({kind})" for name, kind in entry.features.items()),
        "left over": ", ".join(entry.dead),
    }
    print("\n".join(f"{name:<9}  {value}" for name, value in lines.items() if value))


def _prune(entries: list[Entry], args: argparse.Namespace) -> None:
    from core.data.pruning import remove, to_remove

    planned = to_remove(entries, older_than=args.older_than, max_size=args.max_size)
    done = planned if args.dry_run else [removal for removal in planned if remove(removal)]
    freed = sum(removal.size for removal in done)
    kept = sum(entry.size for entry in entries) - freed
    if args.json:
        removed = [_removal_as_json(removal) for removal in done]
        told = {"schema": SCHEMA, "dry_run": args.dry_run, "removed": removed, "freed_bytes": freed, "kept_bytes": kept}
        print(json.dumps(told, indent=2))
        return
    for removal in done:
        what = removal.entry.location if removal.generation is None else removal.entry.location / removal.generation
        print(f"{what}  {byte_count(removal.size)}  {removal.reason}")
    print(f"{byte_count(freed)} {'would be freed' if args.dry_run else 'freed'}, {byte_count(kept)} kept")


def _removal_as_json(removal: Removal) -> dict[str, Any]:
    return {
        "key": removal.entry.key,
        "url": str(removal.entry.location),
        "generation": removal.generation,
        "reason": removal.reason,
        "bytes": removal.size,
    }


def _age(entry: Entry) -> str:
    if entry.begun is None:
        return ""
    seconds = max(0, time.time() - entry.begun)
    unit = next((unit for unit in "dhm" if seconds >= _SECONDS[unit]), "s")
    return f"{seconds / _SECONDS[unit]:.0f}{unit}"
