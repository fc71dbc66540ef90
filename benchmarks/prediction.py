"""Batch prediction of a CSV and of a Parquet file, against hand-written reading, encoding and a batched forward pass.

A round is one of each, in turn, in one process; either ends with a pandas DataFrame, from the same weights.

With `--large`, a Parquet file of that many rows to a Parquet file, as `core predict` does it, against nothing but the
batched forward pass over tensors that are in memory already; and the memory that a quarter of the rows takes, and all.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.common import ROWS, Result, interleaved, parser_of, report
from benchmarks.flights import CATEGORIES, NUMBERS, TARGET, Encoding, Network, config, flights
from core import Model
from core.run import open_model

BATCH_ROWS = 8192
TRAINING_ROWS = 20_000
ROW_GROUP_ROWS = 1 << 17


class ByHand:
    """A trained model as plain torch and pandas."""

    def __init__(self, model: Path) -> None:
        saved = open_model(model)
        self.encoding = Encoding(
            pd.Series({name: saved.metadata[name]["mean"] for name in NUMBERS}),
            pd.Series({name: saved.metadata[name]["std"] for name in NUMBERS}),
            [pd.Index(saved.metadata[name]["vocabulary"][1:]) for name in CATEGORIES],
        )
        self.network = Network(self.encoding.sizes)
        # Both networks define encoders, combiner and decoder in this order.
        names = self.network.state_dict()
        self.network.load_state_dict(dict(zip(names, _weights(model), strict=True)))

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Log odds."""
        self.network.eval()
        with torch.inference_mode():
            parts = zip(numbers.split(BATCH_ROWS), codes.split(BATCH_ROWS), strict=True)
            return torch.cat([self.network(*part) for part in parts])

    def predict(self, path: Path) -> pd.DataFrame:
        """The columns that core writes for a binary output."""
        columns = [*NUMBERS, *CATEGORIES]
        table = pd.read_csv(path, usecols=columns) if path.suffix == ".csv" else pd.read_parquet(path, columns=columns)
        numbers, codes = map(torch.tensor, self.encoding.apply(table))
        true = self.forward(numbers, codes).sigmoid().numpy()
        return pd.DataFrame(
            {
                f"{TARGET}_predictions": true >= 0.5,
                f"{TARGET}_probability": (true >= 0.5) * true + (true < 0.5) * (1 - true),
                f"{TARGET}_probabilities_False": 1 - true,
                f"{TARGET}_probabilities_True": true,
            }
        )


def _weights(model: Path) -> list[torch.Tensor]:
    """Weights in the order in which the network defines them."""
    from core.model import build

    saved = open_model(model)
    network = build(saved.config, saved.metadata)
    network.load_state_dict(saved.weights())
    return list(network.state_dict().values())


def trained(table: pd.DataFrame, folder: Path) -> Path:
    """The folder of a model after one epoch on the first rows."""
    model = Model(config(), backend={"cache_dir": str(folder / "cache")})
    return model.train(training_set=table.iloc[:TRAINING_ROWS], output_directory=folder).model_path


def measure(rows: int, rounds: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = flights(rows)
        table.to_csv(folder / "flights.csv", index=False)
        table.to_parquet(folder / "flights.parquet")
        path = trained(table, folder)
        ours, hand = Model.load(path, backend="local"), ByHand(path)
        results = []
        for kind in ("csv", "parquet"):
            dataset = folder / f"flights.{kind}"
            sides = {"core": functools.partial(ours.predict, dataset), "hand": functools.partial(hand.predict, dataset)}
            seconds = interleaved(sides, rounds)
            results.append(
                Result(
                    what=f"prediction, {kind}",
                    ours=seconds["core"],
                    reference=seconds["hand"],
                    unit="rows/s",
                    scale=len(table),
                )
            )
    return results


def large_file(table: pd.DataFrame, rows: int, path: Path) -> None:
    """The table again and again, in row groups of one size."""
    whole = pa.Table.from_pandas(table, preserve_index=False)
    with pq.ParquetWriter(path, whole.schema) as writer:
        for start in range(0, rows, len(table)):
            writer.write_table(whole.slice(0, rows - start), row_group_size=ROW_GROUP_ROWS)


def measure_large(rows: int, rounds: int) -> tuple[list[Result], list[str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = flights(ROWS)
        model = trained(table, folder)
        large_file(table, rows, folder / "large.parquet")
        large_file(table, rows // 4, folder / "quarter.parquet")
        ours, hand = Model.load(model, backend="local"), ByHand(model)
        numbers, codes = map(torch.tensor, hand.encoding.apply(pd.read_parquet(folder / "large.parquet")))
        sides = {
            "core": functools.partial(ours.predict, folder / "large.parquet", output=folder / "predictions.parquet"),
            "hand": functools.partial(hand.forward, numbers, codes),
        }
        seconds = interleaved(sides, rounds)
        files = ("quarter.parquet", "large.parquet")
        peaks = {file: _peak_above_start(model, folder / file, folder / "predictions.parquet") for file in files}
    result = Result(
        what="file to file, against tensors",
        ours=seconds["core"],
        reference=seconds["hand"],
        unit="rows/s",
        promise=0.9,
        scale=rows,
    )
    small, large = peaks.values()
    note = f"peak memory above start: {small / 1e6:.0f} MB for {rows // 4:,} rows, {large / 1e6:.0f} MB for {rows:,}"
    return [result], [note]


_ALONE = """
import re, sys
from pathlib import Path
from core import Model
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
model, path, output, few = sys.argv[1:]
model = Model.load(model, backend="local")
model.predict(few, output=output)
before = peak()
model.predict(path, output=output)
print(peak() - before)
"""


def _peak_above_start(model: Path, path: Path, output: Path) -> int:
    """Bytes that predicting a file adds to a process that has predicted a few rows before."""
    few = path.parent / "few.parquet"
    pq.write_table(pq.read_table(path).slice(0, BATCH_ROWS), few)
    arguments = [os.fspath(place) for place in (model, path, output, few)]
    return int(subprocess.run([sys.executable, "-c", _ALONE, *arguments], check=True, capture_output=True).stdout)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--large", type=int, metavar="ROWS", help="measure a large file instead")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.large:
        results, notes = measure_large(options.large, options.rounds)
        return report(results, options, notes)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
