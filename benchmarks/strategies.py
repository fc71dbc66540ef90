"""Rows a second of two workers on this machine, by strategy.

ddp against a script that a person would write for `DistributedDataParallel`: the same network, batches and threads, in
two processes, which reports no losses. The other strategies against ddp. A round starts each of them, in turn, and an
epoch that warms up is not timed; nor is what evaluates or saves.
"""

from __future__ import annotations

import functools
import importlib.util
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.common import Result, options_of, report
from benchmarks.flights import TARGET, Encoding, Network, config, flights
from core import Callback, Model

ROWS = 100_000
WORKERS, EPOCHS = 2, 3
BATCHES = (256, 1024)
BY_HAND = "hand-written DDP"
PROMISES = {"horovod": 0.9, "fsdp": None, "deepspeed": None}
"""What each strategy keeps of ddp's speed."""


class Stopwatch(Callback):
    """Seconds of the epochs, but for the first."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.start = self.stop = 0.0

    def on_epoch_start(self, **details: Any) -> None:
        self.start = time.perf_counter()

    def on_batch_end(self, **details: Any) -> None:
        self.stop = time.perf_counter()

    def on_epoch_end(self, *, epoch: int, **details: Any) -> None:
        if epoch:
            self.seconds += self.stop - self.start


def with_core(table: pd.DataFrame, folder: Path, strategy: str, batch_rows: int) -> float:
    """Seconds of the epochs that count."""
    settings = config(epochs=EPOCHS)
    settings["trainer"]["batch_size"] = batch_rows
    trainer = {"use_gpu": False, "num_workers": WORKERS, "strategy": strategy}
    settings["backend"] = {"type": "local", "cache_dir": str(folder), "trainer": trainer}
    stopwatch = Stopwatch()
    Model(settings, callbacks=[stopwatch]).train(training_set=table, output_directory=folder)
    return stopwatch.seconds


def by_hand(data: tuple[Tensor, ...], sizes: list[int], batch_rows: int) -> float:
    """Seconds of the epochs that count, of the slowest worker."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    results = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(_worker, (port, data, sizes, batch_rows, results), nprocs=WORKERS)
    return max(results.get() for _ in range(WORKERS))


def _worker(rank: int, port: int, data: tuple[Tensor, ...], sizes: list[int], batch_rows: int, results: Any) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS)
    torch.manual_seed(0)
    model = DistributedDataParallel(Network(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    loss = nn.BCEWithLogitsLoss()
    numbers, codes, targets = data
    shuffling = torch.Generator().manual_seed(0)
    seconds = 0.0
    for epoch in range(EPOCHS):
        distributed.barrier()
        start = time.perf_counter()
        for batch in torch.randperm(len(targets), generator=shuffling).split(batch_rows):
            rows = batch.tensor_split(WORKERS)[rank]
            optimizer.zero_grad()
            loss(model(numbers[rows], codes[rows]), targets[rows]).backward()
            optimizer.step()
        if epoch:
            seconds += time.perf_counter() - start
    results.put(seconds)
    del model  # before the group, which its reducer holds
    distributed.destroy_process_group()


def measure(rows: int, rounds: int) -> list[Result]:
    table = flights(rows)
    encoding = Encoding.of(table)
    numbers, codes = encoding.apply(table)
    data = tuple(map(torch.tensor, (numbers, codes, table[TARGET].to_numpy("float32"))))
    strategies = ["ddp", *(name for name in PROMISES if name == "fsdp" or importlib.util.find_spec(name))]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for batch_rows in BATCHES:
            sides: Mapping[str, Callable[[], float]] = {
                BY_HAND: functools.partial(by_hand, data, encoding.sizes, batch_rows),
                **{name: functools.partial(with_core, table, Path(folder), name, batch_rows) for name in strategies},
            }
            seconds: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(rounds):
                for name in seconds if number % 2 else reversed(seconds):
                    seconds[name].append(sides[name]())
            scale = rows * (EPOCHS - 1)
            one = functools.partial(Result, unit="rows/s", scale=scale)
            label = f"batches of {batch_rows}"
            results.append(
                one(what=f"ddp / {BY_HAND}, {label}", ours=seconds["ddp"], reference=seconds[BY_HAND], promise=0.97)
            )
            results += [
                one(what=f"{name} / ddp, {label}", ours=seconds[name], reference=seconds["ddp"], promise=PROMISES[name])
                for name in strategies[1:]
            ]
    return results


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=5, rows=ROWS)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
