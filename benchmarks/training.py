"""Rows a second of training, against a hand-written PyTorch loop and, where it is installed, Lightning.

A round is one epoch of each, in turn, in one process. What evaluates or saves is not timed.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.common import Result, options_of, report
from benchmarks.flights import BATCH_ROWS, TARGET, Encoding, Network, config, flights
from core import Callback, Model


class ByHand:
    """Tensors in memory, a permutation an epoch, and one indexing operation a tensor and batch."""

    def __init__(self, table: pd.DataFrame) -> None:
        encoding = Encoding.of(table)
        numbers, codes = encoding.apply(table)
        self.sizes = encoding.sizes
        self.data = tuple(map(torch.tensor, (numbers, codes, table[TARGET].to_numpy("float32"))))
        self.network = Network(self.sizes)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001)
        self.loss = nn.BCEWithLogitsLoss()

    def epoch(self) -> float:
        """Seconds of an epoch."""
        numbers, codes, targets = self.data
        self.network.train()
        start = time.perf_counter()
        for rows in torch.randperm(len(targets)).split(BATCH_ROWS):
            self.optimizer.zero_grad()
            self.loss(self.network(numbers[rows], codes[rows]), targets[rows]).backward()
            self.optimizer.step()
        return time.perf_counter() - start


class WithLightning:
    """The same network and batches under a Lightning trainer."""

    def __init__(self, by_hand: ByHand) -> None:
        import lightning

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")
        network = Network(by_hand.sizes)

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = network
                self.start = self.seconds = 0.0

            def training_step(self, batch: tuple[Tensor, ...], index: int) -> Tensor:
                value = by_hand.loss(self.network(batch[0], batch[1]), batch[2])
                self.log("loss", value)
                return value

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.Adam(self.parameters(), lr=0.001)

            def on_train_epoch_start(self) -> None:
                self.start = time.perf_counter()

            def on_train_epoch_end(self) -> None:
                self.seconds = time.perf_counter() - self.start

        self.module = Module()
        self.batches = torch.utils.data.DataLoader(
            _WholeBatches(by_hand.data), batch_size=BATCH_ROWS, shuffle=True, collate_fn=lambda batch: batch
        )
        self.trainer = lightning.Trainer

    def epoch(self) -> float:
        """Seconds of an epoch."""
        trainer = self.trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(self.module, self.batches)
        return self.module.seconds


class _WholeBatches(torch.utils.data.Dataset[Any]):
    """Rows that a `DataLoader` takes a whole batch at a time."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, ...]:
        index = torch.tensor(rows)
        return tuple(tensor[index] for tensor in self.tensors)


class Stopwatch(Callback):
    """Times core's epochs, losses of every batch reported, and runs the others' between them."""

    def __init__(self, others: dict[str, Callable[[], float]]) -> None:
        self.others = others
        self.seconds: dict[str, list[float]] = {"core": [], **{name: [] for name in others}}
        self.start = self.stop = 0.0

    def on_epoch_start(self, **details: Any) -> None:
        self.start = time.perf_counter()

    def on_batch_end(self, **details: Any) -> None:
        self.stop = time.perf_counter()

    def on_epoch_end(self, **details: Any) -> None:
        self.seconds["core"].append(self.stop - self.start)
        for name, epoch in self.others.items():
            self.seconds[name].append(epoch())


def measure(rows: int, rounds: int) -> tuple[list[Result], dict[str, Any]]:
    """The results, and the shapes of the weights of either model."""
    table = flights(rows)
    by_hand = ByHand(table)
    others = {"hand-written loop": by_hand.epoch}
    if importlib.util.find_spec("lightning"):
        others["Lightning"] = WithLightning(by_hand).epoch
    stopwatch = Stopwatch(others)
    with tempfile.TemporaryDirectory() as folder:
        model = Model(config(epochs=rounds + 1), backend={"cache_dir": folder}, callbacks=[stopwatch])
        run = model.train(training_set=table, output_directory=folder)
        ours = load_file(Path(run.model_path) / "model.safetensors")
    seconds = {name: values[1:] for name, values in stopwatch.seconds.items()}  # the first round warms up
    results = [
        Result(what=f"training, {name}", ours=seconds["core"], reference=seconds[name], unit="rows/s", scale=rows)
        for name in others
    ]
    shapes = {
        "core": sorted(tuple(weight.shape) for weight in ours.values()),
        "hand-written": sorted(tuple(weight.shape) for weight in by_hand.network.parameters()),
    }
    return results, shapes


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=6)
    if options.threads:
        torch.set_num_threads(options.threads)
    results, shapes = measure(options.rows, options.rounds)
    if shapes["core"] != shapes["hand-written"]:
        raise SystemExit(f"the models differ: {shapes}")
    parameters = sum(torch.Size(shape).numel() for shape in shapes["core"])
    return report(results, options, [f"{parameters:,} parameters each, {torch.get_num_threads()} threads"])


if __name__ == "__main__":
    sys.exit(main())
