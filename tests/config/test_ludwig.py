from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core.config import loads, ludwig
from core.config.sections import SPLITS
from core.features import INPUTS, OUTPUTS
from core.model.combiners import COMBINERS
from core.training.optimizers import OPTIMIZERS

PAGE = (Path(__file__).parents[2] / "docs" / "ludwig.md").read_text(encoding="utf-8")


def unsupported(row: str) -> set[str]:
    """The names in a row of the page's last table."""
    table = PAGE.partition("## Not supported")[2]
    line = next(line for line in table.splitlines() if line.startswith(f"| {row} |"))
    return set(re.findall(r"`([^`]+)`", line.partition(f"| {row} |")[2].partition(";")[0]))


def test_the_example_of_the_page_is_a_config() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)

    assert [feature.name for feature in loads(example).input_features] == ["PClass", "Age"]


@pytest.mark.parametrize(
    ("row", "names", "supported"),
    [
        ("feature types", ludwig.TYPES["input_features"], {*INPUTS, "numerical"}),
        ("combiners", ludwig.TYPES["combiner"], {*COMBINERS}),
    ],
)
def test_the_page_lists_what_is_not_supported(row: str, names: set[str], supported: set[str]) -> None:
    assert unsupported(row) == names - supported


def test_the_page_lists_nothing_that_is_supported() -> None:
    assert unsupported("optimisers") & {*OPTIMIZERS} == set()
    assert unsupported("optimisers") <= ludwig.TYPES["optimizer"]
    assert unsupported("top level") <= ludwig.KEYS[""]
    assert unsupported("`model_type`") == {*ludwig.MODEL_TYPES}


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("input_features", INPUTS),
        ("output_features", OUTPUTS),
        ("combiner", COMBINERS),
        ("optimizer", OPTIMIZERS),
        ("split", SPLITS),
    ],
)
def test_the_types_core_has_are_called_as_in_ludwig(key: str, choices: dict[str, Any]) -> None:
    assert set(choices) <= ludwig.TYPES[key]
