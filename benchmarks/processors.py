"""Preprocessing of a large CSV by dask against pandas: time of both, and the memory that dask takes.

A round is one of each, in turn, in one process, into a cache that is empty every time. pandas reads with the threads of
Arrow and works on as many partitions at once as there are processors, so dask has little to win on one machine: a note
says how busy each kept the processors, which bounds what another engine can gain. What is promised is against pandas
with one partition, and how little dask adds where a file is small. Memory is the most that a process of its own, and
those it starts, have resident while it preprocesses a file of `--memory-megabytes`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import Result, interleaved, report

MEGABYTE = 1 << 20
LIMIT = 1536
DISTINCT_CHUNKS = 20
NUMBERS = [f"n{index}" for index in range(6)]
CATEGORIES = {"small": 10, "medium": 1000, "large": 50_000}


def write(path: Path, megabytes: int) -> None:
    """A CSV of numbers, categories and short texts, about so large; rows repeat after some hundred megabytes."""
    random = np.random.default_rng(0)
    words = np.array([f"word{index}" for index in range(5000)])
    rows = 60_000
    chunks: list[bytes] = []
    with path.open("wb") as file:
        for number in itertools.count():
            if file.tell() >= megabytes * MEGABYTE:
                break
            if number >= DISTINCT_CHUNKS:
                file.write(chunks[number % DISTINCT_CHUNKS])
                continue
            frame = pd.DataFrame({name: random.normal(size=rows).round(5) for name in NUMBERS})
            for name, count in CATEGORIES.items():
                frame[name] = np.char.add(name, random.integers(0, count, rows).astype(str))
            frame["text"] = [" ".join(row) for row in words[random.integers(0, len(words), (rows, 6))]]
            frame["y"] = random.integers(0, 2, rows)
            chunks.append(frame.to_csv(index=False, header=False).encode())
            file.write(b"" if number else ",".join(frame.columns).encode() + b"\n")
            file.write(chunks[-1])


def config() -> dict[str, Any]:
    return {
        "input_features": [
            *({"name": name, "type": "number"} for name in NUMBERS),
            *({"name": name, "type": "category"} for name in CATEGORIES),
            {"name": "text", "type": "text", "preprocessing": {"max_sequence_length": 16}},
        ],
        "output_features": [{"name": "y", "type": "binary"}],
    }


ENGINES: dict[str, str | dict[str, Any]] = {
    "dask": "dask",
    "pandas": "pandas",
    "pandas, one partition": {"type": "pandas", "parallelism": 1},
}


def preprocess(path: Path, cache: Path, processor: str | dict[str, Any]) -> None:
    """Through core, with the processor that is named."""
    import core

    core.preprocess(config(), path, backend={"type": "local", "processor": processor, "cache_dir": str(cache)})


def measure(megabytes: int, rounds: int, promises: Mapping[str, float | None]) -> tuple[list[Result], str]:
    """dask against each engine that is named in `promises`; and how busy all of them kept the processors."""
    processor_seconds = dict.fromkeys(ENGINES, 0.0)
    wall_seconds = dict.fromkeys(ENGINES, 0.0)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "data.csv"
        write(path, megabytes)
        numbers = itertools.count()

        def work(engine: str) -> None:
            began, wall = time.process_time(), time.perf_counter()
            preprocess(path, Path(name) / f"cache-{next(numbers)}", ENGINES[engine])
            processor_seconds[engine] += time.process_time() - began
            wall_seconds[engine] += time.perf_counter() - wall

        engines = ["dask", *promises]
        seconds = interleaved({engine: functools.partial(work, engine) for engine in engines}, rounds)
    results = [
        Result(
            what=f"{megabytes} MB, dask against {other}", ours=seconds["dask"], reference=seconds[other], promise=least
        )
        for other, least in promises.items()
    ]
    busy = ", ".join(f"{engine} {processor_seconds[engine] / wall_seconds[engine]:.2f}" for engine in engines)
    each = ", ".join(f"{engine} {processor_seconds[engine] / (rounds + 1):.2f} s" for engine in engines)
    return results, f"{megabytes} MB: processor time a run: {each}; processors busy: {busy}"


def peak(megabytes: int, processor: str) -> Result:
    """The most memory, in megabytes, of a process that preprocesses, and of those it starts."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "data.csv"
        write(path, megabytes)
        code = "import sys; from pathlib import Path; from benchmarks.processors import preprocess; "
        code += "preprocess(*map(Path, sys.argv[1:3]), sys.argv[3])"
        words = [sys.executable, "-c", code, str(path), f"{name}/cache", processor]
        process = subprocess.Popen(words)
        most = 0.0
        while process.poll() is None:
            most = max(most, _resident(process.pid))
            time.sleep(0.05)
        if process.returncode:
            raise RuntimeError(f"{processor} failed on {megabytes} MB")
    return Result(what=f"{megabytes} MB, memory of {processor}", ours=[most], reference=[LIMIT], unit="MB")


def _resident(process: int) -> float:
    """Megabytes of a process and its children. Linux only."""
    try:
        own = Path(f"/proc/{process}/smaps_rollup").read_text().split("Pss:")[1].split()[0]
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (OSError, IndexError):
        return 0.0
    return int(own) / 1024 + sum(_resident(int(child)) for child in children)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="of the file that is timed (default: %(default)s)")
    parser.add_argument("--small-megabytes", type=int, default=10, help="of a small one (default: %(default)s)")
    parser.add_argument("--memory-megabytes", type=int, default=1000, help="of the other (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a promise is not kept")
    options = parser.parse_args(arguments)
    results: list[Result] = []
    notes = []
    for megabytes, promises in (
        (options.megabytes, {"pandas": None, "pandas, one partition": 1.4}),
        (options.small_megabytes, {"pandas": 1 / 1.5}),
    ):
        if megabytes:
            found, note = measure(megabytes, options.rounds, promises)
            results += found
            notes.append(note)
    if options.memory_megabytes:
        results.append(peak(options.memory_megabytes, "dask"))
    return report(results, options, notes)


if __name__ == "__main__":
    sys.exit(main())
