"""What every processor has to do, and what polars makes of types."""

from __future__ import annotations

import pytest

from core.registry import registry
from core.testing.processor import ProcessorConformance
from core_polars import PolarsOptions


class TestPolars(ProcessorConformance):
    processor = "polars"


def test_it_is_found_by_its_word():
    assert registry().spec("processor", "polars").options is PolarsOptions


def test_no_threads_are_refused():
    with pytest.raises(ValueError, match="threads"):
        PolarsOptions(threads=0)
