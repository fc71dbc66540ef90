"""What the benchmarks share: their options, interleaved timing, and the report."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

ROWS = 300_000


@attrs.frozen(kw_only=True)
class Result:
    """One line of a report.

    Attributes:
        what: what was measured.
        ours, reference: amounts, less is better, one a round; `reference` may be a promised amount.
        promise: least ratio of reference to ours; None where nothing is promised.
        scale: amounts are shown as `scale` / amount where that is a rate.
    """

    what: str
    ours: list[float]
    reference: list[float]
    unit: str = "s"
    promise: float | None = 1.0
    scale: float | None = None

    @property
    def ratio(self) -> float:
        """The median over rounds: what disturbs the machine for a while disturbs both sides of a round."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.ours, self.reference, strict=True))

    @property
    def best_ratio(self) -> float:
        return min(self.reference) / min(self.ours)

    @property
    def kept(self) -> bool:
        return self.promise is None or self.ratio >= self.promise

    def described(self) -> dict[str, Any]:
        shown = self.shown
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": shown(statistics.median(self.ours)),
            "reference": shown(statistics.median(self.reference)),
            "ratio": round(self.ratio, 3),
            "ratio of the best": round(self.best_ratio, 3),
            "promised": self.promise,
        }

    def shown(self, amount: float) -> float:
        return float(f"{self.scale / amount if self.scale else amount:.4g}")


def interleaved(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each side in each round, after one that does not count. Every other round runs them backwards."""
    names = list(sides)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        for name in names if number % 2 else names[::-1]:
            start = time.perf_counter()
            sides[name]()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def options_of(
    doc: str | None, arguments: Sequence[str] | None, *, rounds: int, rows: int = ROWS
) -> argparse.Namespace:
    """What a benchmark was asked for; its help is the module's docstring."""
    return parser_of(doc, rounds=rounds, rows=rows).parse_args(arguments)


def parser_of(doc: str | None, *, rounds: int, rows: int = ROWS) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=rows, help="rows of the table (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds that count (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a promise is not kept")
    return parser


def memory_of_process(entry: str) -> int:
    """Bytes that Linux tells of this process: `VmRSS` for now, `VmHWM` for the most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(entry)


def report(results: Iterable[Result], options: argparse.Namespace, notes: Sequence[str] = ()) -> int:
    """Print what was measured; returns the exit status."""
    results = list(results)
    rows = [result.described() for result in results]
    if options.json:
        print(json.dumps({"results": rows, "notes": list(notes)}, indent=1))
    else:
        for note in notes:
            print(note)
        cells = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    broken = [result for result in results if not result.kept]
    return 1 if options.check and broken else 0


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "")
