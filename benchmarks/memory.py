"""Peak memory of training, against four times the encoded data plus the model, its gradients and optimiser state.

Training from a filled cache has a process to itself. What counts is what it takes above what a run on a few rows
left: the imports, and all that is loaded on first use. Linux only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import Result, memory_of_process, options_of, report

MEGABYTE = 1 << 20
FEW_ROWS = 2048


def measure(rows: int) -> dict[str, int]:
    """Bytes of the encoded data, of the model's weights, and of the peak above the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        return _apart(f"fill(Path({folder!r}), {rows})") | _apart(f"train(Path({folder!r}))")


def _apart(call: str) -> dict[str, int]:
    """What a call of this module returns in a process of its own."""
    code = f"import json; from pathlib import Path; from benchmarks.memory import *; print(json.dumps({call}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
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

    Model(config()).train(folder / "few.parquet", output_directory=folder)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = memory_of_process("VmRSS")
    run = Model(config()).train(folder / "all.parquet", output_directory=folder)
    return {
        "peak": memory_of_process("VmHWM") - before,
        "weights": Path(run.model_path, "model.safetensors").stat().st_size,
    }


def main(arguments: list[str] | None = None) -> int:
    options = options_of(__doc__, arguments, rounds=1)
    measured = [measure(options.rows) for _ in range(options.rounds)]
    allowed = [4 * found["encoded"] + 4 * found["weights"] for found in measured]
    result = Result(
        what="training, peak memory",
        ours=[found["peak"] / MEGABYTE for found in measured],
        reference=[bytes_ / MEGABYTE for bytes_ in allowed],
        unit="MiB",
    )
    note = (
        f"encoded data {measured[0]['encoded'] / MEGABYTE:.1f} MiB, weights {measured[0]['weights'] / MEGABYTE:.1f} MiB"
    )
    return report([result], options, [note])


if __name__ == "__main__":
    sys.exit(main())
