from __future__ import annotations

import pytest

pytest.importorskip("dask")

from core.testing.processor import ProcessorConformance  # noqa: E402


class TestThreads(ProcessorConformance):
    processor = "dask"
