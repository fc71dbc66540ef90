"""Make a package for a new plugin: it installs, is listed, and passes its tests as it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from core.discovery import Kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=get_args(Kind), help="what it is to provide")
    parser.add_argument("name", metavar="NAME", help="the word by which a config will name it, such as local-sgd")
    parser.add_argument("--directory", default=".", metavar="DIR", help="where its folder is made (here)")


def run(args: argparse.Namespace) -> int:
    from core.scaffold import make

    folder = make(args.kind, args.name, Path(args.directory))
    print(f"{folder}\n\nNext:\n  pip install -e '{folder}[test]'\n  core list-plugins\n  pytest {folder}")
    return 0
