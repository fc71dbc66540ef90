"""Print the JSON Schema (draft 7) of the config, options of the installed plugins included.

An editor with a YAML language server then completes and checks a config whose first line is
`# yaml-language-server: $schema=FILE`.
"""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write it to this file instead of stdout")


def run(args: argparse.Namespace) -> int:
    from core.config.schema import schema

    text = json.dumps(schema(), indent=2) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        from core.storage import Location

        Location.of(args.output).write_atomic(text.encode())
    return 0
