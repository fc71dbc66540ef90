"""Peak memory of training, against four times the encoded data plus the model, its gradients and optimiser state.

Training from a filled cache has a process to itself. What counts is what it takes above the memory that its imports
take, and a run on a few rows that loads what is loaded on first use. Linux only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Result, options_of, report

MEGABYTE = 1 << 20
FEW_ROWS = 2048


def measure(rows: int) -> dict[str, int]:
    """Bytes of the encoded data, of the model's weights, and of the peak above the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        _in_process("fill", folder, rows)
        return _in_process("train", folder, rows)


def _in_process(step: str, folder: str, rows: int) -> dict[str, int]:
    words = [sys.executable, "-m", "benchmarks.memory", "--step", step, "--folder", folder, "--rows", str(rows)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def fill(folder: Path, rows: int) -> dict[str, int]:
    """Write the datasets and fill the cache."""
    from benchmarks.flights import config, flights
    from core import preprocess

    table = flights(rows)
    encoded = 0
    for name, part in {"all": table, "few": table.iloc[:FEW_ROWS]}.items():
        part.to_parquet(folder / f"{name}.parquet")
        processed = preprocess(config(), folder / f"{name}.parquet")
        if name == "all":
            encoded = sum(split.read(0, split.rows).nbytes for split in processed.splits.values())
    return {"encoded": encoded}


def train(folder: Path) -> dict[str, int]:
    """Train from the cache, and tell the peak."""
    from benchmarks.flights import config
    from core import Model

    def run(name: str) -> Any:
        return Model(config()).train(folder / f"{name}.parquet", output_directory=folder)

    run("few")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    run = run("all")
    return {"peak": _status("VmHWM") - before, "weights": (run.model_path / "model.safetensors").stat().st_size}
