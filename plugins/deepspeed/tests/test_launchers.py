"""DeepSpeed in processes that a launcher of others started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

CONFIG = {
    "input_features": [{"name": "x", "type": "number"}],
    "output_features": [{"name": "y", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
    "trainer": {"epochs": 1},
    "backend": {"trainer": {"strategy": {"type": "deepspeed", "zero_optimization": {"stage": 3}}}},
}
COMMANDS = {
    "deepspeed": [
        str(Path(sysconfig.get_path("scripts"), "deepspeed")),
        *["--num_accelerators", "2", "--master_port", "PORT", "--module", "core"],
    ],
    "torchrun": [
        sys.executable,
        *["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "PORT", "-m", "core"],
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", COMMANDS)
def test_the_usual_command_of_a_launcher_trains_and_ends(tmp_path, launcher):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    rows = [f"{number % 7},{int(number % 7 > 3)}" for number in range(80)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y", *rows]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [port if word == "PORT" else word for word in COMMANDS[launcher]]
    words = ["train", "--config", "config.yaml", "--dataset", "data.csv", "--output-directory", "results"]

    done = subprocess.run(
        [*command, *words],
        cwd=tmp_path,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best weights") == 1
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["experiment_run"]
