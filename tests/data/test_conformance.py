"""The default engine passes the kit that every other one has to pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from core.errors import DataError
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions
from core.testing.datasets import cases
from core.testing.processor import ProcessorConformance


class TestPandas(ProcessorConformance):
    processor = "pandas"


class Wrong(PandasProcessor):
    """An engine with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__(ProcessorOptions(parallelism=3))
        self.fault = fault

    def map(self, frame: pd.DataFrame, function: Callable[[pa.Table, int], Any]) -> list[Any]:
        def wrong(table: pa.Table, first_row: int) -> Any:
            if self.fault == "forgets the first row":
                first_row = 0
            if self.fault == "loses a row" and first_row:
                table = table.slice(1)
            return function(table, first_row)

        results = super().map(frame, wrong)
        return results[::-1] if self.fault == "is out of order" else results


@pytest.mark.parametrize("fault", ["forgets the first row", "loses a row", "is out of order"])
def test_the_kit_finds_faults(fault: str, tmp_path: Path) -> None:
    class Kit(ProcessorConformance):
        def make(self, parallelism: int | None) -> PandasProcessor:
            return Wrong(fault)

    with pytest.raises((AssertionError, DataError, ValueError, IndexError)):
        Kit().test_gives_what_pandas_gives(cases()[0], tmp_path)
    with pytest.raises((AssertionError, DataError)):
        Kit().test_partitions_are_the_rows_in_order(Wrong(fault))
