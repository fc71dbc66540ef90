"""Batches of 1024 shuffled rows through Ray Data: 10 numbers and 5 categories, without a model.

Held in the object store, and streamed in windows, against the memory loader, and against what Ray Data's own
`iter_torch_batches` does on the same files with a local shuffle. One process asks; a cluster is started for it.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Result, interleaved, options_of, report
from benchmarks.loading import ROWS, epoch, split_of
from core.backends.ray.cluster import SETTINGS
from core.loaders.memory import MemoryLoader
from core.loaders.ray import RayLoader
from core.specs import LoaderOptions

BATCH_ROWS = 1024
WINDOW_BYTES = 20_000_000
BUFFER_ROWS = 100_000


def by_ray(dataset: Any) -> int:
    """Take every batch; the rows in them."""
    batches = dataset.iter_torch_batches(batch_size=BATCH_ROWS, local_shuffle_buffer_size=BUFFER_ROWS)
    return sum(len(batch["n0"]) for batch in batches)


def measure(rows: int, rounds: int) -> list[Result]:
    import ray

    os.environ |= SETTINGS
    ray.init(
        address="local",
        object_store_memory=2 << 30,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        split = split_of(Path(name), rows)
        device = torch.device("cpu")
        streamed = LoaderOptions(fully_executed=False, window_size_bytes=WINDOW_BYTES)
        loaders = {
            "memory": MemoryLoader(split, LoaderOptions(), device),
            "memory, streamed": MemoryLoader(split, streamed, device),
            "ray": RayLoader(split, LoaderOptions(), device),
            "ray, streamed": RayLoader(split, streamed, device),
        }
        sides: dict[str, Any] = {name: functools.partial(epoch, of, BATCH_ROWS) for name, of in loaders.items()}
        dataset = ray.data.read_parquet(name).drop_columns(["__row__"]).materialize()
        sides["iter_torch_batches"] = functools.partial(by_ray, dataset)
        seconds = interleaved(sides, rounds)
        for loader in loaders.values():
            loader.close()
    ray.shutdown()
    return [
        Result(
            what=f"{ours}, against {reference}",
            ours=seconds[ours],
            reference=seconds[reference],
            unit="rows/s",
            scale=rows,
            promise=promise,
        )
        for ours, reference, promise in [
            ("ray", "memory", None),
            ("ray", "iter_torch_batches", 10.0),
            ("ray, streamed", "memory, streamed", 1 / 1.5),
            ("ray, streamed", "iter_torch_batches", None),
        ]
    ]


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=3, rows=ROWS)
    torch.set_num_threads(options.threads or 1)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
