"""Under a launcher, rank 0 prepares for as long as it takes; the others wait longer than their group's timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 6
SCRIPT = """
import os, sys, time
import core, core.errors

class Slow(core.Callback):
    def on_preprocess_start(self, **details):
        print("preparing", flush=True)
        time.sleep({seconds})

config = {{
    "input_features": [{{"name": "a", "type": "number"}}],
    "output_features": [{{"name": "b", "type": "number"}}],
    "trainer": {{"epochs": 1}},
    "backend": {{"trainer": {{"strategy": {{"type": "ddp", "timeout_s": {timeout}}}}}}},
}}
try:
    core.Model(config, callbacks=[Slow()]).train({dataset!r}, output_directory={output!r})
    print("trained", flush=True)
except core.errors.CoreError as error:
    print(f"rank {{os.environ['RANK']}}: {{error}}", flush=True)
    sys.exit(error.exit_status)
"""


@pytest.fixture
def launch(tmp_path):
    """Starts torchrun with two workers, of which rank 0 takes `seconds` to prepare."""
    (tmp_path / "data.csv").write_text("a,b\n" + "".join(f"{row},{row % 7}\n" for row in range(40)))

    def start(*, seconds: float, dataset: str = "data.csv") -> subprocess.Popen[str]:
        script = tmp_path / "script.py"
        script.write_text(
            SCRIPT.format(
                seconds=seconds,
                timeout=TIMEOUT_SECONDS,
                dataset=str(tmp_path / dataset),
                output=str(tmp_path / "results"),
            )
        )
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    return start


def test_preparing_may_take_longer_than_an_exchange(launch):
    output, errors = (process := launch(seconds=1.5 * TIMEOUT_SECONDS)).communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.count("preparing") == 1
    assert output.count("trained") == 2


def test_an_error_after_that_time_reaches_every_worker(launch):
    output, errors = (process := launch(seconds=1.5 * TIMEOUT_SECONDS, dataset="none.csv")).communicate(timeout=120)
    assert process.returncode == 1, errors
    for rank in (0, 1):
        assert any(line.startswith(f"rank {rank}: ") and "none.csv" in line for line in output.splitlines()), output


def test_ctrl_c_ends_all_of_them_while_one_prepares(launch):
    # given
    process = launch(seconds=600)
    assert process.stdout is not None
    assert process.stdout.readline() == "preparing\n"
    # when: as a terminal does, to every process
    os.killpg(process.pid, signal.SIGINT)
    started = time.monotonic()
    output, _ = process.communicate(timeout=60)
    # then
    assert time.monotonic() - started < 20
    assert "rank 0: stopped before" in output
    assert not _members(process.pid)


def _members(session: int) -> list[int]:
    """The processes that are left of a session."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found
