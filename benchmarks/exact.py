"""What `trainer.exact` costs: an epoch with it and without, in one process and on two workers.

A round is a run of two epochs of each, in turn, of which the second is timed up to its evaluation. The weights of all
exact runs must be the same bytes, or nothing is reported.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.common import Result, options_of, report
from benchmarks.flights import config, flights
from core import Callback, Model

GROUPS: dict[str, dict[str, Any]] = {
    "one process": {"strategy": "single"},
    "two workers": {"strategy": "ddp", "num_workers": 2},
}
ROWS, VALIDATION_ROWS = 100_000, 100


class Stopwatch(Callback):
    """Seconds of the last epoch, and bytes of the gradients exchanged in a step."""

    def on_train_start(self, *, exchanged_bytes: int, **details: Any) -> None:
        self.exchanged_bytes = exchanged_bytes

    def on_epoch_start(self, **details: Any) -> None:
        self.start = time.perf_counter()

    def on_evaluation_start(self, **details: Any) -> None:
        self.seconds = time.perf_counter() - self.start


def train(table: pd.DataFrame, folder: Path, group: Mapping[str, Any], *, exact: bool) -> tuple[Stopwatch, bytes]:
    """Train two epochs; returns what was measured, and the weights."""
    settings = config(epochs=2)
    settings["trainer"]["exact"] = exact
    settings["backend"] = {"type": "local", "cache_dir": str(folder), "trainer": {"use_gpu": False, **group}}
    stopwatch = Stopwatch()
    run = Model(settings, callbacks=[stopwatch]).train(
        training_set=table, validation_set=table.iloc[:VALIDATION_ROWS], output_directory=folder
    )
    return stopwatch, (run.model_path / "model.safetensors").read_bytes()


def measure(rows: int, rounds: int) -> tuple[list[Result], list[str]]:
    """The results, and notes on what travels."""
    table = flights(rows)
    results, weights, gathered = [], set(), 0
    with tempfile.TemporaryDirectory() as name:
        for label, group in GROUPS.items():
            one = functools.partial(train, table, Path(name), group)
            ours, reference = [], []
            for _ in range(rounds):
                ordinary, _ = one(exact=False)
                exact, bytes_of_weights = one(exact=True)
                reference.append(ordinary.seconds)
                ours.append(exact.seconds)
                weights.add(bytes_of_weights)
                gathered = exact.exchanged_bytes
            results.append(
                Result(
                    what=f"exact, {label}",
                    ours=ours,
                    reference=reference,
                    unit="rows/s",
                    promise=None,
                    scale=rows,
                )
            )
    if len(weights) != 1:
        raise SystemExit("the weights of exact runs differ")
    return results, [f"{gathered / 2**20:.1f} MiB of gradients gathered in each step on two workers"]


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=3, rows=ROWS)
    if options.threads:
        torch.set_num_threads(options.threads)
    results, notes = measure(options.rows, options.rounds)
    return report(results, options, notes)


if __name__ == "__main__":
    sys.exit(main())
