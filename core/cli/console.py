"""What a person sees while a run goes on: progress bars on a terminal, a line now and then elsewhere, tables."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from core.callbacks import Callback, Scores

PLAIN_LINE_SECONDS = 10.0


class Bar(Protocol):
    """The part of tqdm's interface that is used here."""

    def update(self, n: int) -> Any: ...

    def close(self) -> Any: ...


class _PlainBar:
    """Progress as a line now and then, for logs."""

    def __init__(self, what: str, total: int, unit: str, stream: TextIO) -> None:
        self.what, self.total, self.unit, self.stream = what, total, unit, stream
        self.done = 0
        self.next = time.monotonic() + PLAIN_LINE_SECONDS

    def update(self, n: int) -> None:
        self.done += n
        if time.monotonic() >= self.next and self.done < self.total:
            self.next = time.monotonic() + PLAIN_LINE_SECONDS
            print(f"{self.what}: {self.done:,} of {self.total:,} {self.unit}s", file=self.stream, flush=True)

    def close(self) -> None:
        pass


class Console(Callback):
    """Progress and tables on `stream`, by default stderr.

    Args:
        quiet: say nothing of progress.
        profile: show at the end where the time went.
    """

    throttled = True

    def __init__(self, *, quiet: bool = False, profile: bool = False, stream: TextIO | None = None) -> None:
        self.quiet, self.profile = quiet, profile
        self.stream = stream or sys.stderr
        self.bar: Bar | None = None
        self.stage = ""
        self.done = 0
        self.epochs = self.seconds = 0.0

    def say(self, text: str) -> None:
        if not self.quiet:
            self._end_bar()
            print(text, file=self.stream, flush=True)

    def _start_bar(self, what: str, total: int, unit: str, done: int = 0) -> None:
        self._end_bar()
        self.done = done
        if self.quiet:
            return
        if self.stream.isatty():
            from tqdm import tqdm

            self.bar = tqdm(
                desc=what,
                total=total,
                initial=done,
                unit=unit,
                unit_scale=total >= 10_000,
                leave=False,
                file=self.stream,
                dynamic_ncols=True,
            )
        else:
            self.bar = _PlainBar(what, total, f" {unit}".strip(), self.stream)
            self.bar.update(done)

    def _to(self, done: int) -> None:
        if self.bar is not None and done > self.done:
            self.bar.update(done - self.done)
            self.done = done

    def _end_bar(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def on_preprocess_progress(self, *, stage: str, done: int, total: int, **details: Any) -> None:
        if stage != self.stage:
            self.stage = stage
            self._start_bar(stage, total, "partition")
        self._to(done)

    def on_preprocess_end(self, *, url: str, hit: bool, rows: dict[str, int], **details: Any) -> None:
        counts = ", ".join(f"{count:,} {split}" for split, count in rows.items() if count)
        self.say(f"{'cached data' if hit else 'data processed'}: {counts} rows in {url}")

    def on_train_start(self, *, steps: int, epochs: int, done: int, exchanged_bytes: int, **details: Any) -> None:
        self.epochs, self.seconds = epochs, time.monotonic()
        if done:
            self.say(f"continuing after step {done} of {steps}" if done < steps else "this run is finished already")
        if exchanged_bytes:
            self.say(f"exact: each step gathers {exchanged_bytes / 2**20:,.1f} MiB of gradients on every worker")
        self.steps, self.trained = steps, done
        self._start_bar("training", steps, "step", done)

    def on_batch_end(self, *, step: int, **details: Any) -> None:
        if self.bar is None:
            self._start_bar("training", self.steps, "step", self.trained)
        self._to(step)
        self.trained = step

    def on_evaluation_start(self, *, split: str, rows: int, **details: Any) -> None:
        self._start_bar(f"evaluating {split}", rows, "row")

    def on_evaluation_progress(self, *, rows: int, **details: Any) -> None:
        self._to(self.done + rows)

    def on_evaluation_end(self, **details: Any) -> None:
        self._end_bar()

    def on_epoch_end(self, *, epoch: int, step: int, scores: Scores, **details: Any) -> None:
        now = time.monotonic()
        self.say(f"epoch {epoch + 1}/{self.epochs:.0f}, step {step}, {now - self.seconds:.1f} s\n{table(scores)}")
        self.seconds = now
        self.trained = step

    def on_prediction_progress(self, *, rows: int, **details: Any) -> None:
        if self.bar is None:
            self._start_bar("predicting", 0, "row")
        self._to(self.done + rows)

    def on_train_end(self, *, profile: dict[str, float], **details: Any) -> None:
        self._end_bar()
        if self.profile:
            print(profile_table(profile), file=self.stream, flush=True)


def table(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Metrics as text: a row for each metric of each feature, a column for each split."""
    splits = list(scores)
    rows = list(
        dict.fromkeys((name, metric) for by in scores.values() for name, values in by.items() for metric in values)
    )
    if len({name for name, _ in rows} - {"combined"}) == 1:
        rows = [row for row in rows if row[0] != "combined"]  # with one output it repeats that output's loss
    cells = [["", "", *splits]]
    last = None
    for name, metric in rows:
        values = [_number(scores[split].get(name, {}).get(metric)) for split in splits]
        cells.append([name if name != last else "", metric, *values])
        last = name
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  "
        + "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def profile_table(seconds: Mapping[str, float]) -> str:
    """Parts of the training loop as text: seconds, share of the whole, and what each is."""
    from core.training.profile import PARTS

    whole = sum(seconds.values())
    lines = [f"profile of worker 0, {whole:.1f} s"]
    lines += [f"  {part:<10}  {spent:9.2f} s  {spent / whole:6.1%}  {PARTS[part]}" for part, spent in seconds.items()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "undefined" if math.isnan(value) else f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}"


def byte_count(size: float | None) -> str:
    """``12 bytes``, ``3.4 MB``: three digits, units of a thousand."""
    if size is None:
        return "an unknown size"
    if size < 1000:
        return f"{size:.0f} bytes"
    size = float(f"{size:.3g}")  # which may make 999.9 MB a GB
    power = min(int(math.log10(size)) // 3, 4)
    return f"{size / 1000**power:.3g} {('kB', 'MB', 'GB', 'TB')[power - 1]}"
