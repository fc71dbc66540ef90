"""How long commands take, imports included, against what is promised; each in a process of its own."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import Result, interleaved, options_of, report
from benchmarks.flights import config, flights

HELP_SECONDS, LIST_SECONDS, EPOCH_SECONDS = 0.5, 0.3, 6.0
EPOCH_ROWS = 1000


def command(*arguments: str) -> None:
    """Run `core` with these arguments."""
    subprocess.run([sys.executable, "-m", "core", *arguments], check=True, capture_output=True)


def measure(rows: int, rounds: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flights(rows).to_csv(folder / "flights.csv", index=False)
        (folder / "config.json").write_text(json.dumps(config()))
        train = ("train", "-c", str(folder / "config.json"), "--dataset", str(folder / "flights.csv"), "-od", name)
        promised = {
            ("train", "--help"): HELP_SECONDS,
            ("list-plugins",): LIST_SECONDS,
            (*train, "--skip-save-processed-input"): EPOCH_SECONDS,
        }
        seconds = interleaved({" ".join(words[:2]): functools.partial(command, *words) for words in promised}, rounds)
    labels = ("core train --help", "core list-plugins", f"core train, one epoch of {rows} rows")
    return [
        Result(what=label, ours=measured, reference=[limit] * rounds)
        for label, measured, limit in zip(labels, seconds.values(), promised.values(), strict=True)
    ]


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=5, rows=EPOCH_ROWS)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
