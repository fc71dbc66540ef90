"""The memory loader: the contract, one copy for the workers of a node, and memory bounded by windows."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
import torch

from core.loader import BatchPlan
from core.loaders import memory, shared
from core.loaders.ahead import read_ahead
from core.specs import LoaderOptions
from core.testing.loader import LoaderConformance, numbers, reads, recorded, stored_split

ROWS = 60_000


class TestMemory(LoaderConformance):
    loader = "memory"


WORKER = """
import sys, torch
from pathlib import Path
from core.loader import BatchPlan
from core.loaders.memory import MemoryLoader
from core.specs import LoaderOptions
from core.testing.loader import recorded, stored_split

folder = Path(sys.argv[1])
split = recorded(stored_split(folder / sys.argv[2], 60_000), folder / "reads")
loader = MemoryLoader(split, LoaderOptions(), torch.device("cpu"))
rows = [int(batch.columns["row"].sum()) for batch in loader.batches(BatchPlan(batch_size=1000), 0)]
print(sum(rows), flush=True)
if sys.stdin.readline() == "close\\n":
    loader.close()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the workers of this test share their rows."""
    monkeypatch.setattr(shared, "_FOLDERS", (str(tmp_path),))
    return tmp_path / f"core-{os.getuid()}"


@pytest.fixture
def worker(tmp_path):
    """Starts a process that holds the split as one of two workers of this node, and says what its rows add up to."""
    with contextlib.ExitStack() as stack:

        def start() -> subprocess.Popen[str]:
            code = f"from core.loaders import shared; shared._FOLDERS = ({str(tmp_path)!r},)\n{WORKER}"
            process = subprocess.Popen(
                [sys.executable, "-c", code, str(tmp_path), f"split-{os.urandom(4).hex()}"],
                env={**os.environ, "LOCAL_WORLD_SIZE": "2"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def said(process: subprocess.Popen[str]) -> int:
    return int(process.stdout.readline())


def test_workers_of_a_node_hold_one_copy(folder, worker, tmp_path):
    both = [worker(), worker()]

    assert [said(process) for process in both] == [sum(range(ROWS))] * 2
    assert len(reads(tmp_path / "reads")) == -(-ROWS // (1 << 14)), "one of them read the split, once"
    [file] = folder.iterdir()
    assert file.stat().st_mode & 0o077 == folder.stat().st_mode & 0o077 == 0, "for this user's eyes only"

    for process in both:
        process.communicate("close\n")
    assert list(folder.iterdir()) == []


def test_what_killed_workers_leave_is_removed(folder, worker, tmp_path, monkeypatch):
    left = worker()
    said(left)
    left.send_signal(signal.SIGKILL)
    left.wait()
    [stale] = folder.iterdir()

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    other = memory.MemoryLoader(stored_split(tmp_path / "other", ROWS + 1), LoaderOptions(), torch.device("cpu"))

    assert not stale.exists()
    other.close()
    assert list(folder.iterdir()) == []


def test_a_copy_that_was_not_finished_is_made_again(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    split = stored_split(tmp_path / "split", ROWS)
    folder.mkdir(mode=0o700)
    (folder / f"{split.key}.rows").write_bytes(b"\0" * 1_000_000)

    loader = memory.MemoryLoader(split, LoaderOptions(), torch.device("cpu"))

    plan = BatchPlan(batch_size=ROWS, shuffle=False)
    assert numbers(loader.batches(plan, 0)) == [list(range(ROWS))]
    loader.close()


@pytest.mark.parametrize("reason", ["no room", "another user's folder"])
def test_without_a_place_to_share_each_has_its_own(folder, tmp_path, monkeypatch, caplog, reason):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    if reason == "no room":
        monkeypatch.setattr(shared, "_FOLDERS", ())
    else:
        folder.mkdir(mode=0o755)
    caplog.set_level("INFO", logger="core")

    loader = memory.MemoryLoader(stored_split(tmp_path / "split", ROWS), LoaderOptions(), torch.device("cpu"))

    assert "each worker holds a copy" in caplog.text
    assert sum(len(rows) for rows in numbers(loader.batches(BatchPlan(batch_size=999), 0))) == ROWS


def test_workers_read_windows_that_they_need(tmp_path):
    split = recorded(stored_split(tmp_path / "split", ROWS), tmp_path / "reads")
    size = 5000 * 29  # bytes of a row
    options = LoaderOptions(fully_executed=False, window_size_bytes=size)
    loader = memory.MemoryLoader(split, options, torch.device("cpu"))

    [_] = list(loader.batches(BatchPlan(batch_size=1000), 0, start=59))

    assert sum(stop - start for start, stop in reads(tmp_path / "reads")) <= 2 * 8192


def test_an_exception_passes_the_thread_and_the_order_is_kept():
    def items():
        yield from range(5)
        raise KeyError("five")

    ahead = read_ahead(items(), depth=2)
    assert [next(ahead) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="five"):
        next(ahead)
