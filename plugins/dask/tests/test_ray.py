"""Tasks go to the Ray cluster that this process is connected to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pytest

from core.data import open_source
from core.testing.processor import ProcessorConformance
from core_dask import DaskOptions

pytest.importorskip("dask")

from core_dask.processor import DaskProcessor


class TestRay(ProcessorConformance):
    processor = "dask"
    partitions: ClassVar[Sequence[int]] = (3, 17)

    @pytest.fixture(autouse=True)
    def cluster(self, ray_cluster: None) -> None:
        """All tests share one cluster."""


def where(table: pa.Table, first_row: int) -> int:
    return os.getpid()


def test_the_partitions_are_worked_on_elsewhere(ray_cluster: None) -> None:
    engine = DaskProcessor(DaskOptions(parallelism=4))

    processes = set(engine.map(engine.open(open_source({"a": [1] * 100})), where))
    engine.close()

    assert os.getpid() not in processes
