"""Batch prediction of a CSV and of a Parquet file, against hand-written reading, encoding and a batched forward pass.

A round is one of each, in turn, in one process; either ends with a pandas DataFrame, from the same weights.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import pandas as pd
import torch

from benchmarks.common import Result, interleaved, options_of, report
from benchmarks.flights import CATEGORIES, NUMBERS, TARGET, Encoding, Network, config, flights
from core import Model
from core.run import open_model

BATCH_ROWS = 8192
TRAINING_ROWS = 20_000


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

    def predict(self, path: Path) -> pd.DataFrame:
        """The columns that core writes for a binary output."""
        columns = [*NUMBERS, *CATEGORIES]
        table = pd.read_csv(path, usecols=columns) if path.suffix == ".csv" else pd.read_parquet(path, columns=columns)
        numbers, codes = map(torch.tensor, self.encoding.apply(table))
        self.network.eval()
        with torch.inference_mode():
            parts = zip(numbers.split(BATCH_ROWS), codes.split(BATCH_ROWS), strict=True)
            true = torch.cat([self.network(*part) for part in parts]).sigmoid().numpy()
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


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=5)
    if options.threads:
        torch.set_num_threads(options.threads)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
