"""What is Modin's own: the frame it makes, and the cluster it uses."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from core.data import open_source
from core.specs import ProcessorOptions

pytest.importorskip("modin")

from core_modin.processor import ModinProcessor

STARTS_AND_STOPS = """
import ray
from core.data import open_source
from core.specs import ProcessorOptions
from core_modin.processor import OBJECT_STORE_BYTES, ModinProcessor

engine = ModinProcessor(ProcessorOptions(parallelism=2))
assert ray.cluster_resources()["object_store_memory"] <= OBJECT_STORE_BYTES
frame = engine.open(open_source({"a": [1, 2, 3]}))
print(engine.map(frame, lambda table, first_row: (table.num_rows, first_row)))
engine.close()
assert not ray.is_initialized()
"""


def where(table: pa.Table, first_row: int) -> tuple[int, int]:
    return os.getpid(), table.num_rows


@pytest.mark.parametrize("parallelism", [1, 3, 17])
def test_partitions_of_a_modin_frame_are_worked_on_elsewhere(parallelism: int) -> None:
    import modin.pandas

    engine = ModinProcessor(ProcessorOptions(parallelism=parallelism))
    frame = engine.open(open_source({"a": list(range(100))}))

    found = engine.map(frame, where)
    engine.close()  # the cluster is not its own, and stays

    assert isinstance(frame, modin.pandas.DataFrame)
    assert len(found) == parallelism
    assert os.getpid() not in {process for process, _ in found}
    assert len(frame) == 100


@pytest.mark.slow
def test_a_cluster_of_its_own_is_started_and_stopped() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS_AND_STOPS], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[(1, 0), (2, 1)]"
