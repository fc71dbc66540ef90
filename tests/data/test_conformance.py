"""The default engine passes the kit that every other one has to pass."""

from __future__ import annotations

from core.testing.processor import ProcessorConformance


class TestPandas(ProcessorConformance):
    processor = "pandas"
