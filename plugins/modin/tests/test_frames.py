"""A Modin DataFrame, or a Ray Data dataset, as the dataset is what its rows are in pandas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from core import preprocess
from core.data import open_source

pytest.importorskip("modin")

# Ray Data's own defaults are settings that it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")

FRAME = pd.DataFrame({"x": [i / 3 for i in range(90)], "c": list("äbc") * 30, "y": [True, False] * 45})
CONFIG = {
    "input_features": [{"name": "x", "type": "number"}, {"name": "c", "type": "category"}],
    "output_features": [{"name": "y", "type": "binary"}],
}


def modin_frame() -> object:
    import modin.config
    import modin.pandas

    modin.config.Engine.put("Ray")
    return modin.pandas.DataFrame(FRAME)


def ray_dataset() -> object:
    import ray

    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data.from_pandas([FRAME.iloc[start : start + 30] for start in (0, 30, 60)])


@pytest.mark.parametrize("make", [modin_frame, ray_dataset])
def test_values_and_fingerprint_are_those_of_pandas(make: object) -> None:
    source = open_source(make())

    found = pa.concat_tables([read() for read in source.blocks(None)])

    assert found.to_pydict() == FRAME.to_dict("list")
    assert source.fingerprint() == open_source(FRAME).fingerprint()


@pytest.mark.parametrize("processor", ["pandas", "modin"])
@pytest.mark.parametrize("make", [modin_frame, ray_dataset])
def test_they_are_preprocessed_like_a_pandas_frame(tmp_path: Path, make: object, processor: str) -> None:
    def run(dataset: object, processor: str) -> object:
        backend = {"type": "local", "processor": processor, "cache_dir": str(tmp_path)}
        return preprocess(CONFIG, dataset, backend=backend)

    first = run(make(), processor)
    second = run(FRAME, "pandas")

    assert second.hit
    assert second.key == first.key
