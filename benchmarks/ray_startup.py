"""What core adds to the start of a Ray job: its shortest training, against `TorchTrainer.fit` of an empty loop.

Both run on one cluster of this machine, with two workers, after one of each that does not count.
"""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import time

import pandas as pd

from benchmarks.common import Result, interleaved, options_of, report
from core import Model

ROWS, WORKERS = 200, 2
PROMISE = 1 / 1.25
CONFIG = {
    "input_features": [{"name": "x", "type": "number"}],
    "output_features": [{"name": "y", "type": "binary"}],
    "trainer": {"epochs": 1},
}


def with_core(table: pd.DataFrame, folder: str) -> None:
    """Train one epoch."""
    trainer = {"num_workers": WORKERS, "use_gpu": False}
    backend = {"type": "ray", "cache_dir": folder, "processor": "pandas", "trainer": trainer}
    Model({**CONFIG, "backend": backend}).train(table, output_directory=folder)


def with_ray(folder: str) -> None:
    """Start workers that do nothing."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(
        lambda: None,
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(name=f"empty-{time.time_ns()}", storage_path=folder),
    ).fit()


def measure(rows: int, rounds: int) -> list[Result]:
    from core.backends.ray.cluster import connect

    connect()
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    table = pd.DataFrame({"x": range(rows), "y": [0, 1] * (rows // 2)})
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            "core": functools.partial(with_core, table, folder),
            "ray": functools.partial(with_ray, folder),
        }
        seconds = interleaved(sides, rounds)
    what = f"one epoch of {rows} rows / an empty loop, on Ray with {WORKERS} workers"
    return [Result(what=what, ours=seconds["core"], reference=seconds["ray"], promise=PROMISE)]


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=3, rows=ROWS)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
