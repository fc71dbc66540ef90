"""Dask gives what pandas gives, wherever its tasks run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from core.testing.processor import ProcessorConformance

pytest.importorskip("dask")


class TestThreads(ProcessorConformance):
    processor = "dask"
    options: ClassVar[Mapping[str, Any]] = {"scheduler": "threads"}


class TestCluster(ProcessorConformance):
    processor = "dask"
    partitions: ClassVar[Sequence[int]] = (3,)

    @pytest.fixture(autouse=True)
    def address(self, dask_cluster: str) -> None:
        self.options = {"address": dask_cluster}
