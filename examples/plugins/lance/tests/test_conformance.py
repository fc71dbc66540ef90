"""What every loader has to do, and what becomes of the copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import ClassVar

import pytest
import torch

from core.errors import StorageError
from core.loader import BatchPlan
from core.testing.loader import LoaderConformance, numbers, stored_split
from core_lance import LanceOptions
from core_lance.loader import LanceLoader

ROWS = 20_000
CPU = torch.device("cpu")


class TestLance(LoaderConformance):
    loader = "lance"
    options: ClassVar = {"chunk_bytes": 60_000}
    streamed = False  # making the copy reads all of the split, a part at a time


@pytest.fixture
def folder(tmp_path):
    return tmp_path / f"core-lance-{os.getuid()}"


def test_streaming_asks_for_nothing_else(tmp_path):
    split = stored_split(tmp_path / "split", ROWS)
    plan, found = BatchPlan(batch_size=999, seed=1), []
    for held in (True, False):
        loader = LanceLoader(split, LanceOptions(directory=str(tmp_path), fully_executed=held), CPU)
        found.append(numbers(loader.batches(plan, 0)))
        loader.close()
    assert found[0] == found[1]
    assert sum(map(len, found[0])) == ROWS


def test_workers_share_a_copy_and_the_last_removes_it(tmp_path, folder):
    split = stored_split(tmp_path / "split", ROWS)
    options = LanceOptions(directory=str(tmp_path))
    first, second = LanceLoader(split, options, CPU), LanceLoader(split, options, CPU)
    assert sorted(path.suffix for path in folder.iterdir()) == [".lance", ".lock"]
    first.close()
    assert sum(map(len, numbers(second.batches(BatchPlan(batch_size=64), 0)))) == ROWS
    second.close()
    assert list(folder.iterdir()) == []


def test_what_a_killed_worker_leaves_is_removed(tmp_path, folder):
    code = (
        "import sys, torch; from pathlib import Path\n"
        "from core.testing.loader import stored_split; from core_lance import LanceOptions\n"
        "from core_lance.loader import LanceLoader\n"
        "split = stored_split(Path(sys.argv[1]) / 'split', 5000)\n"
        "loader = LanceLoader(split, LanceOptions(directory=sys.argv[1]), torch.device('cpu'))\n"
        "print('made', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "made\n"
        process.send_signal(signal.SIGKILL)
    left = set(folder.iterdir())
    assert len(left) == 2

    loader = LanceLoader(stored_split(tmp_path / "other", ROWS), LanceOptions(directory=str(tmp_path)), CPU)

    assert not left & set(folder.iterdir())
    loader.close()


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"backend\.loader\.directory"):
        LanceLoader(stored_split(tmp_path / "split", 100), LanceOptions(directory=str(tmp_path / "file")), CPU)


def test_no_readahead_is_refused():
    with pytest.raises(ValueError, match="readahead"):
        LanceOptions(readahead=0)
