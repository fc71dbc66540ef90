"""Preprocessing of a CSV, against pandas.read_csv and hand-written encoding.

A round is one of each, in turn, in one process. core reads, splits, types, sums up, encodes, and keeps the result as
Parquet with checksums in a cache that is empty every time. The hand-written code is what a person would write: numbers
scaled, one indicator column a category (codes where there are thousands), the result saved as Parquet. Codes alone, as
core keeps them, are shown beside it: less work than core does, and no promise.
"""

from __future__ import annotations

import functools
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.common import Result, interleaved, options_of, report
from benchmarks.flights import CATEGORIES, NUMBERS, TARGET, Encoding, config, flights
from core import preprocess
from core.data import Processed

SPLITS = ("training", "validation", "test")
FRACTIONS = (0.7, 0.1, 0.2)
FEW = 200
"""Most categories that get a column each."""


def by_hand(path: Path, splits: np.ndarray | None = None, *, save: Path | None = None) -> dict[str, pd.DataFrame]:
    """The encoded rows of each split.

    Args:
        splits: of each row, 0 to 2; drawn where they are not given.
        save: folder for a Parquet file a split.
    """
    table = pd.read_csv(path)
    if splits is None:
        rows = len(table)
        places = np.random.default_rng(42).permutation(rows)
        splits = np.searchsorted(np.cumsum(FRACTIONS)[:2] * rows, places, side="right")
    parts = [table[splits == number] for number in range(len(SPLITS))]
    encoding = Encoding.of(parts[0])
    encoded = {}
    for name, part in zip(SPLITS, parts, strict=True):
        numbers, codes = encoding.apply(part)
        columns = dict(zip(NUMBERS, numbers.T, strict=True)) | dict(zip(CATEGORIES, codes.T, strict=True))
        encoded[name] = pd.DataFrame(columns | {TARGET: part[TARGET].to_numpy()})
        if save is not None:
            encoded[name].to_parquet(save / f"{name}.parquet")
    return encoded


def with_indicators(path: Path, folder: Path) -> None:
    """As `by_hand`, with `pandas.get_dummies` for the columns of few categories, saved."""
    table = pd.read_csv(path)
    places = np.random.default_rng(42).permutation(len(table))
    splits = np.searchsorted(np.cumsum(FRACTIONS)[:2] * len(table), places, side="right")
    few = [name for name in CATEGORIES if table[name].nunique() <= FEW]
    many = [name for name in CATEGORIES if name not in few]
    numbers = table[list(NUMBERS)].astype("float32")
    training = numbers[splits == 0]
    scaled = ((numbers - training.mean()) / training.std()).fillna(0)
    codes = {name: pd.factorize(table[name])[0].astype("int32") for name in many}
    encoded = pd.concat([scaled, pd.get_dummies(table[few])], axis=1).assign(**codes, **{TARGET: table[TARGET]})
    for number, name in enumerate(SPLITS):
        encoded[splits == number].to_parquet(folder / f"{name}.parquet")


def with_core(path: Path, cache: Path) -> Processed:
    return preprocess(config(), path, backend={"cache_dir": str(cache)})


def measure(rows: int, rounds: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "flights.csv"
        flights(rows).to_csv(path, index=False)
        caches = (folder / f"cache-{number}" for number in itertools.count())
        seconds = interleaved(
            {
                "core": lambda: with_core(path, next(caches)),
                "indicators": functools.partial(with_indicators, path, folder),
                "codes": functools.partial(by_hand, path, save=folder),
            },
            rounds,
        )
    return [
        Result(what=f"preprocessing, {kind} by hand", ours=seconds["core"], reference=seconds[kind], promise=promise)
        for kind, promise in (("indicators", 1.0), ("codes", None))
    ]


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=5)
    return report(measure(options.rows, options.rounds), options)


if __name__ == "__main__":
    sys.exit(main())
