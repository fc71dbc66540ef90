from __future__ import annotations

import pytest

from core.testing.processor import ProcessorConformance

pytest.importorskip("modin")


class TestModin(ProcessorConformance):
    processor = "modin"
