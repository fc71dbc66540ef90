"""Whether a config learns the same wherever it is trained: each strategy, here and on Ray, against a single process.

Real data of every type of feature, in models without dropout or batch statistics. A way of training fails where the
loss of a step is off by more than 1e-4 of it, or where a step has other rows. Metrics are those of the test rows after
the last step; differences are relative. A run on Ray takes some 15 seconds, so all of them take half an hour.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from core import Callback, Model
from core.errors import CoreError, Interrupted
from examples import get_data

BAR = 1e-4
STEPS = 200
BACKENDS = ("local", "ray")
WORKERS = (1, 2)
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"type": "ddp"},
    "fsdp": {"type": "fsdp"},
    **{f"deepspeed-{n}": {"type": "deepspeed", "zero_optimization": {"stage": n}} for n in range(4)},
    "horovod": {"type": "horovod"},
}
_NUMBERS = ("Lot_Frontage", "Lot_Area", "Year_Built", "Total_Bsmt_SF", "First_Flr_SF", "Gr_Liv_Area", "Garage_Area")
_CATEGORIES = ("MS_SubClass", "Neighborhood", "House_Style", "Overall_Cond", "Exterior_1st", "Garage_Type")
CONFIGS: dict[str, dict[str, Any]] = {
    "titanic": {
        "input_features": [
            {"name": "Age", "type": "number", "preprocessing": {"missing_value_strategy": "fill_with_mean"}},
            {"name": "PClass", "type": "category"},
            {"name": "Sex", "type": "binary"},
            {"name": "Name", "type": "text", "encoder": {"type": "rnn", "embedding_size": 16, "state_size": 32}},
        ],
        "output_features": [{"name": "Survived", "type": "binary"}],
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 64},
        "preprocessing": {"split": {"type": "stratify", "column": "Survived"}},
        "trainer": {"batch_size": 64},
    },
    "ames": {
        "input_features": [
            *({"name": name, "type": "number"} for name in _NUMBERS),
            *({"name": name, "type": "category"} for name in _CATEGORIES),
            {"name": "Street", "type": "binary", "preprocessing": {"fallback_true_label": "Pave"}},
        ],
        "output_features": [{"name": "Sale_Price", "type": "number", "preprocessing": {"normalization": "zscore"}}],
        "combiner": {"type": "concat", "num_fc_layers": 2, "output_size": 64},
        "trainer": {"batch_size": 128, "gradient_accumulation_steps": 2},
    },
    "fine_foods": {
        "input_features": [
            {
                "name": "review",
                "type": "text",
                "encoder": {"type": "parallel_cnn", "embedding_size": 32, "num_filters": 16, "output_size": 32},
                "preprocessing": {"max_sequence_length": 48},
            }
        ],
        "output_features": [{"name": "score", "type": "category"}],
        "preprocessing": {"split": {"type": "fixed", "column": "split"}},
        "trainer": {"batch_size": 96},
    },
}


@attrs.frozen(kw_only=True)
class Way:
    """A way to train."""

    backend: str
    strategy: str
    workers: int

    def section(self, cache: Path) -> dict[str, Any]:
        """The `backend` section of a config."""
        trainer = {"strategy": STRATEGIES.get(self.strategy, self.strategy), "num_workers": self.workers}
        return {"type": self.backend, "cache_dir": str(cache), "trainer": {**trainer, "use_gpu": False}}


SINGLE = Way(backend="local", strategy="single", workers=1)


@attrs.frozen(kw_only=True)
class Curve:
    """What a run came to.

    Attributes:
        losses, rows: of each step, over all workers.
        metrics: ``{"<feature> <metric>": value}`` of the test rows, after the last step.
    """

    losses: list[float]
    rows: list[int]
    metrics: dict[str, float]
    seconds: float


@attrs.frozen(kw_only=True)
class Line:
    """A way to train against a single process; what failed has no numbers, and a `problem`."""

    dataset: str
    way: Way
    loss_difference: float = math.inf
    metric_difference: float = math.inf
    same_rows: bool = False
    seconds: float = 0.0
    problem: str = ""

    @classmethod
    def of(cls, dataset: str, way: Way, found: Curve, expected: Curve) -> Line:
        return cls(
            dataset=dataset,
            way=way,
            loss_difference=difference(found.losses, expected.losses),
            metric_difference=difference(found.metrics.values(), expected.metrics.values()),
            same_rows=found.rows == expected.rows,
            seconds=found.seconds,
        )

    @property
    def kept(self) -> bool:
        return self.same_rows and self.loss_difference <= BAR


class Watch(Callback):
    """Remembers the loss and the rows of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rows: list[int] = []

    def on_batch_end(self, *, loss: float, rows: int, **details: Any) -> None:
        self.losses.append(loss)
        self.rows.append(rows)


def difference(found: Iterable[float], expected: Iterable[float]) -> float:
    """The largest of ``|found - expected| / |expected|``; infinite where there are more of one than of the other."""
    pairs = itertools.zip_longest(found, expected, fillvalue=math.inf)
    return max(itertools.starmap(_relative, pairs), default=0.0)


def _relative(found: float, expected: float) -> float:
    if found == expected or (math.isnan(found) and math.isnan(expected)):
        return 0.0
    relative = abs(found - expected) / abs(expected) if expected else math.inf
    return math.inf if math.isnan(relative) else relative


def table(name: str, folder: Path) -> Path:
    """A data set as a file."""
    path = folder / f"{name}.csv"
    get_data.write(get_data.DATASETS[name](), path)
    return path


def learn(name: str, dataset: Path, backend: dict[str, Any], steps: int, results: Path) -> Curve:
    """Train the config of data set `name`; the run's folder is made in `results`."""
    described = CONFIGS[name]
    trainer = {**described["trainer"], "train_steps": steps, "early_stop": -1}
    watch = Watch()
    model = Model({**described, "trainer": trainer, "backend": backend}, callbacks=[watch])
    start = time.perf_counter()
    run = model.train(str(dataset), output_directory=results, skip_save_progress=True)
    last = {
        f"{feature} {metric}": values[-1]
        for feature, metrics in run.training_statistics["test"].items()
        for metric, values in metrics.items()
    }
    return Curve(losses=watch.losses, rows=watch.rows, metrics=last, seconds=time.perf_counter() - start)


def compare(name: str, ways: Iterable[Way], steps: int) -> Iterator[Line]:
    """A single process against itself, for its seconds, then each of `ways` against it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dataset = table(name, folder)
        expected = learn(name, dataset, SINGLE.section(folder), steps, folder)
        yield Line.of(name, SINGLE, expected, expected)
        for way in ways:
            try:
                found = learn(name, dataset, way.section(folder), steps, folder)
            except Interrupted:
                raise
            except CoreError as error:
                yield Line(dataset=name, way=way, problem=str(error))
            else:
                yield Line.of(name, way, found, expected)


COLUMNS = "{:<12}{:<9}{:<13}{:>7}  {:>11}  {:>11}  {:<5}{:>8}"
TITLES = ("data set", "backend", "strategy", "workers", "step loss", "metrics", "rows", "seconds")


def shown(line: Line) -> str:
    """A row of the table."""
    way = line.way
    found = (
        f"{line.loss_difference:.1e}",
        f"{line.metric_difference:.1e}",
        "equal" if line.same_rows else "other",
        f"{line.seconds:.1f}",
    )
    mark = "" if line.kept else f"  {line.problem or 'differs'}"
    return COLUMNS.format(line.dataset, way.backend, way.strategy, way.workers, *found) + mark


def described(line: Line) -> dict[str, Any]:
    """A row of the table as plain values."""
    flat = attrs.asdict(line)
    return {"dataset": flat.pop("dataset"), **flat.pop("way"), **flat, "kept": line.kept}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, choices in (("datasets", CONFIGS), ("backends", BACKENDS), ("strategies", STRATEGIES)):
        names = list(choices)
        parser.add_argument(f"--{option}", nargs="+", choices=names, default=names, metavar="NAME", help=str(names))
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS, metavar="N", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    ways = [
        Way(backend=backend, strategy=strategy, workers=workers)
        for backend, strategy, workers in itertools.product(options.backends, options.strategies, options.workers)
    ]
    if "ray" in options.backends:
        from core.backends.ray.cluster import connect

        connect()  # to one cluster for all runs, and apart from their seconds
    lines = []
    if not options.json:
        print(COLUMNS.format(*TITLES))
    for line in itertools.chain.from_iterable(compare(name, ways, options.steps) for name in options.datasets):
        lines.append(line)
        if not options.json:
            print(shown(line), flush=True)
    if options.json:
        print(json.dumps([described(line) for line in lines], indent=1))
    return 0 if all(line.kept for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
