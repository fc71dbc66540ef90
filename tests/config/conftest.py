from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.config import load
from core.errors import ConfigError, Problem


@pytest.fixture
def minimal() -> dict[str, Any]:
    return {
        "input_features": [{"name": "Age", "type": "number"}, {"name": "Sex", "type": "category"}],
        "output_features": [{"name": "Survived", "type": "binary"}],
    }


@pytest.fixture
def problems(minimal: dict[str, Any]) -> Callable[..., dict[str, Problem]]:
    """The problems, by path, of the minimal config with these sections."""

    def of(**sections: Any) -> dict[str, Problem]:
        with pytest.raises(ConfigError) as caught:
            load(minimal | sections)
        found = {problem.path: problem for problem in caught.value.problems}
        assert len(found) == len(caught.value.problems), "a path is reported twice"
        return found

    return of
