"""Small datasets, configs, and a way to preprocess them with any number of partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.config.sections import Config, Preprocessing
from core.data import CacheOptions, Datasets, Processed, preprocess
from core.features import BinaryOutput, CategoryInput, NumberInput
from core.features.base import InputFeature, OutputFeature
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the real cache."""
    folder = tmp_path / "user-cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def make_config() -> Callable[..., Config]:
    """A config of two inputs, x and c, and a binary output y, unless told otherwise."""

    def make(
        inputs: tuple[InputFeature, ...] | None = None,
        outputs: tuple[OutputFeature, ...] | None = None,
        **preprocessing: Any,
    ) -> Config:
        return Config(
            input_features=inputs or (NumberInput(name="x"), CategoryInput(name="c")),
            output_features=outputs or (BinaryOutput(name="y"),),
            preprocessing=Preprocessing(**preprocessing),
        )

    return make


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Processed]:
    """Preprocess into a cache of this test's own; `partitions` is the parallelism."""

    def process(
        config: Config, dataset: Any = None, *, partitions: int | None = None, cache: str = "cache", **more: Any
    ) -> Processed:
        seed = more.pop("seed", 1)
        return preprocess(
            config,
            Datasets(dataset=dataset, **more),
            seed=seed,
            processor=PandasProcessor(ProcessorOptions(parallelism=partitions)),
            cache=CacheOptions(directory=str(tmp_path / cache)),
        )

    return process


@pytest.fixture
def rows() -> dict[str, list[Any]]:
    """200 rows with nulls in every input."""
    return {
        "x": [None if i % 17 == 3 else i * 0.37 - 20 for i in range(200)],
        "c": [None if i % 23 == 5 else "abcde"[i * i % 5] for i in range(200)],
        "y": [i % 3 == 0 for i in range(200)],
    }
