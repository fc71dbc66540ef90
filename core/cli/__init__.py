"""The `core` command: finds the subcommand's module, imports only that, and turns errors into exit statuses.

A subcommand is a module of this package, named in `COMMANDS`, with ``add_arguments(parser)`` and ``run(args) -> int``.
Its docstring is the description that ``core COMMAND --help`` prints; it imports what is heavy inside `run`.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import textwrap
import traceback
from collections.abc import Iterable
from typing import NoReturn

from core.backends.detect import external_launcher, is_coordinator
from core.errors import CoreError, UserError

COMMANDS = {
    "train": "train a model on a dataset",
    "preprocess": "fill the cache of processed data",
    "predict": "predict the outputs of a dataset with a trained model",
    "evaluate": "measure a trained model on a dataset",
    "experiment": "train, then evaluate on the test split",
    "plan": "show what a run would do, and what stands in its way",
    "cache": "show or prune what is kept of processed data",
    "list-plugins": "show what is installed, and whether it works",
    "new-plugin": "make a package for a processor, strategy or loader of your own",
    "schema": "print the JSON Schema of the config",
}


def main(argv: list[str] | None = None) -> int:
    """Run a command line (default: this process's) and return its exit status."""
    words = _ours(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in words
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read our output has seen enough, as in `core list-plugins | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("core: interrupted", file=sys.stderr)
        return 130
    except CoreError as error:
        if verbose:
            traceback.print_exc()
        if is_coordinator():  # every worker of a launcher's group comes to the same error
            print(_report(error), file=sys.stderr)
        return error.exit_status
    except Exception as error:
        traceback.print_exc()
        print(f"core: unexpected {type(error).__name__}; the traceback above says where", file=sys.stderr)
        return 1


def _ours(words: list[str]) -> list[str]:
    """Without the ``--local_rank=0`` that some launchers put before a program's own words; LOCAL_RANK says the same."""
    if words and _hyphenated(words[0]).startswith("--local-rank=") and external_launcher() is not None:
        return words[1:]
    return words


def _run(words: list[str]) -> int:
    if not words or words[0].startswith("-"):
        return _top_level(words)
    name, rest = words[0], list(map(_hyphenated, words[1:]))
    if name.replace("_", "-") not in COMMANDS:
        raise UserError(
            f"unknown command {name!r}", hint=_nearest(name, COMMANDS) or f"commands: {', '.join(COMMANDS)}"
        )
    command = importlib.import_module(f"core.cli.{name.replace('-', '_')}")
    parser = _Parser(prog=f"core {name}", description=command.__doc__)
    command.add_arguments(parser)
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("--quiet", action="store_true", help="say only what is wrong")
    loudness.add_argument("--verbose", action="store_true", help="say more; show the traceback of an error")
    parser.refuse_unknown(rest)
    args = parser.parse_intermixed_args(rest)  # options may stand between positionals
    _set_up_logging(args)
    status: int = command.run(args)
    return status


def _top_level(words: list[str]) -> int:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    parser = _Parser(
        prog="core",
        usage="core COMMAND [options]",
        description="Declarative deep learning: one config file, trained unchanged on a laptop or a cluster.",
        epilog=f"commands:\n{commands}\n\n`core COMMAND --help` lists the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.refuse_unknown(words)
    if parser.parse_args(words).version:
        from core import __version__

        print(f"core {__version__}")
        return 0
    parser.print_help(sys.stderr)
    return 2


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong command line is a `UserError`, and one mistyped option is told apart by name."""

    def __init__(self, **settings: object) -> None:
        super().__init__(allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def refuse_unknown(self, words: list[str]) -> None:
        """Name the unknown long option before argparse complains about what is missing because of it."""
        known = self._option_string_actions
        for word in words:
            option = word.partition("=")[0]
            if option == "--":
                return
            if option.startswith("--") and option not in known:
                self.error(f"unknown option {option}", hint=_nearest(option, known))

    def error(self, message: str, hint: str = "") -> NoReturn:
        raise UserError(message, hint=hint or f"`{self.prog} --help` lists the options")


def _hyphenated(word: str) -> str:
    """`--output_directory=x_y` as `--output-directory=x_y`."""
    option, equals, value = word.partition("=")
    return option.replace("_", "-") + equals + value if option.startswith("--") else word


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def _report(error: CoreError) -> str:
    if len(error.problems) == 1:
        return f"core: {error}"
    return f"core: {len(error.problems)} problems\n" + textwrap.indent("\n".join(map(str, error.problems)), "  ")


def _set_up_logging(args: argparse.Namespace) -> None:
    level = logging.WARNING if args.quiet else logging.DEBUG if args.verbose else logging.INFO
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("core").setLevel(level)
