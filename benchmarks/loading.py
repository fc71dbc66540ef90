"""Batches without a model: shuffled epochs of 10 numbers and 5 categories, on one thread.

Held in memory: against `torch.index_select` of the same bytes, the rows of a batch at a time. Streamed in windows: the
peak of memory against 6 windows, in a process of its own; Linux only. The notes say how far windows carry rows.
"""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from benchmarks.common import Result, interleaved, memory_of_process, options_of, report
from core.data.passes import parquet
from core.data.processed import ROW, Part, StoredSplit, checksum
from core.loader import BatchPlan, epoch_order, row_bytes
from core.loaders.memory import MemoryLoader
from core.loaders.rows import Rows
from core.specs import LoaderOptions
from core.storage import Location

ROWS = 2_000_000
PART_ROWS = 500_000
NUMBERS, CATEGORIES = 10, 5
BATCHES = (128, 1024, 8192)
SMALL = 128
"""Of so few rows, making tensors takes most of the time."""
WINDOW_BYTES = 5_000_000
WINDOWS = 6
MEGABYTE = 1_000_000
SPLIT = "split.pickle"


def split_of(folder: Path, rows: int) -> StoredSplit:
    """A split as preprocessing would keep it."""
    random = np.random.default_rng(0)
    parts, schema = [], pa.schema([])
    for number, start in enumerate(range(0, rows, PART_ROWS)):
        count = min(PART_ROWS, rows - start)
        columns = {f"n{i}": random.normal(size=count).astype(np.float32) for i in range(NUMBERS)}
        columns |= {f"c{i}": random.integers(0, 1000, count).astype(np.int32) for i in range(CATEGORIES)}
        table = pa.table({**columns, ROW: np.arange(start, start + count)})
        schema, data = table.schema, parquet(table)
        path = folder / f"part-{number}.parquet"
        path.write_bytes(data)
        parts.append(Part(file=path.name, rows=count, bytes=data.size, blake2b=checksum(data)))
    return StoredSplit(folder=Location(str(folder)), parts=tuple(parts), stored_schema=schema)


def epoch(loader: MemoryLoader, batch_size: int) -> int:
    """Take every batch; the rows in them."""
    return sum(batch.rows for batch in loader.batches(BatchPlan(batch_size=batch_size), 0))


def gather(matrix: torch.Tensor, batch_size: int) -> None:
    """What no loader does without: the order, and a copy of each batch's rows."""
    [order] = epoch_order(len(matrix), seed=0, epoch=0, shuffle=True)
    for rows in torch.from_numpy(order).split(batch_size):
        matrix.index_select(0, rows)


def held(split: StoredSplit, rounds: int) -> list[Result]:
    loader = MemoryLoader(split, LoaderOptions(), torch.device("cpu"))
    matrix = torch.from_numpy(Rows.of(split).matrix)
    results = []
    for batch_size in BATCHES:
        sides = {
            "core": functools.partial(epoch, loader, batch_size),
            "torch": functools.partial(gather, matrix, batch_size),
        }
        seconds = interleaved(sides, rounds)
        for name, reference, promise in [
            ("torch", seconds["torch"], 0.8 if batch_size > SMALL else None),
            ("5 M rows/s", [split.rows / 5e6] * rounds, 1.0),
        ]:
            results.append(
                Result(
                    what=f"held, batches of {batch_size}, and {name}",
                    ours=seconds["core"],
                    reference=reference,
                    unit="rows/s",
                    scale=split.rows,
                    promise=promise,
                )
            )
    loader.close()
    return results


def streamed(folder: Path) -> int:
    """Bytes of the peak of a streamed epoch above what a first batch left."""
    code = f"from pathlib import Path; from benchmarks.loading import *; print(peak(Path({str(folder)!r})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout)


def peak(folder: Path) -> int:
    torch.set_num_threads(1)
    options = LoaderOptions(fully_executed=False, window_size_bytes=WINDOW_BYTES)
    few = MemoryLoader(kept(folder / "few"), options, torch.device("cpu"))
    epoch(few, 1024)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = memory_of_process("VmRSS")
    epoch(MemoryLoader(kept(folder), options, torch.device("cpu")), 1024)
    return memory_of_process("VmHWM") - before


def keep(split: StoredSplit, folder: Path) -> None:
    (folder / SPLIT).write_bytes(pickle.dumps(split))


def kept(folder: Path) -> StoredSplit:
    """What `keep` wrote down."""
    split: StoredSplit = pickle.loads((folder / SPLIT).read_bytes())
    return split


def carried(rows: int) -> str:
    """How far rows travel: the mean distance between a row's place in the data and in the epoch, as a share of all."""
    told = []
    for share in (0.01, 0.1, 1.0):
        size = None if share == 1 else int(rows * share)
        order = np.concatenate(list(epoch_order(rows, seed=0, epoch=0, shuffle=True, window_rows=size)))
        distance = np.abs(order - np.arange(rows)).mean() / rows
        neighbours = (np.abs(np.diff(order)) < rows * 0.001).mean()
        told.append(f"{share:.0%} of the rows: {distance:.3f} of them apart, {neighbours:.2%} beside a neighbour")
    return "windows of " + "; ".join(told)


def measure(rows: int, rounds: int) -> tuple[list[Result], list[str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split = split_of(folder, rows)
        keep(split, folder)
        (folder / "few").mkdir()
        keep(split_of(folder / "few", 20_000), folder / "few")
        results = held(split, rounds)
        allowed = WINDOWS * WINDOW_BYTES / MEGABYTE
        peaks = [streamed(folder) / MEGABYTE for _ in range(rounds)]
        results.append(
            Result(what="streamed, peak memory", ours=peaks, reference=[allowed] * rounds, unit="MB", promise=1.0)
        )
        size = rows * row_bytes(split.schema) / MEGABYTE
        notes = [f"{size:.0f} MB of rows, windows of {WINDOW_BYTES / MEGABYTE:.0f} MB", carried(rows)]
        return results, notes


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=5, rows=ROWS)
    torch.set_num_threads(options.threads or 1)
    results, notes = measure(options.rows, options.rounds)
    return report(results, options, notes)


if __name__ == "__main__":
    sys.exit(main())
