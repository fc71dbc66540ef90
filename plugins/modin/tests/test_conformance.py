from __future__ import annotations

from core.testing.processor import ProcessorConformance


class TestModin(ProcessorConformance):
    processor = "modin"
