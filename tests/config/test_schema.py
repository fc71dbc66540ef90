from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from core.cli import main
from core.config import load, resolved
from core.config.schema import DRAFT, schema
from core.config.yaml import parse
from core.errors import ConfigError
from core.registry import Record, Registry, registry
from core.specs import StrategyOptions, StrategySpec

NUMBER = {"name": "a", "type": "number"}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    written = schema()
    jsonschema.Draft7Validator.check_schema(written)
    return jsonschema.Draft7Validator(written)


def inputs(**settings: Any) -> dict[str, Any]:
    return {"input_features": [NUMBER | settings]}


GOOD: list[dict[str, Any]] = [
    {},
    inputs(encoder="dense"),
    inputs(encoder={"type": "dense", "num_layers": 2, "norm": None}),
    inputs(encoder={}),
    inputs(column=None, preprocessing={"normalization": None, "fill_value": 1}),
    {"output_features": [{"name": "y", "type": "number", "clip": [0, 1]}]},
    {"output_features": [{"name": "y", "type": "category", "loss": {"class_weights": {"a": 1}}}]},
    {"output_features": [{"name": "y", "type": "category", "loss": {"class_weights": [1, 2.5]}}]},
    {"combiner": "transformer"},
    {"combiner": {"num_fc_layers": 0}},
    {"trainer": {"gradient_clipping": None, "optimizer": {"type": "sgd", "momentum": 0.9}}},
    {"trainer": {"epochs": "${EPOCHS:-3}", "optimizer": "${OPTIMIZER:-adam}"}},
    {"preprocessing": {"split": {"type": "hash", "column": "id"}}},
    {"preprocessing": {"split": "random"}},
    {"defaults": {"number": {"encoder": "dense", "preprocessing": {"normalization": "log1p"}}}},
    {"backend": "local"},
    {"backend": {"type": None, "trainer": {"strategy": "single", "resources_per_worker": {"GPU": 0.5, "x": 1}}}},
    {"backend": {"cache_credentials": {"s3": {"key": 1}}, "processor": {"type": "pandas", "parallelism": 2}}},
    {"backend": {"cache_credentials": "file.json", "processor": None, "loader": {"fully_executed": False}}},
]

BAD: list[dict[str, Any]] = [
    {"hyperopt": {}},
    {"input_features": []},
    {"input_features": {}},
    {"input_features": None},
    {"input_features": ["number"]},
    {"input_features": [{"name": "a"}]},
    {"input_features": [{"type": "number"}]},
    {"input_features": [{"name": 3, "type": "number"}]},
    {"input_features": [{"name": "a", "type": "nmber"}]},
    inputs(encoder="dens"),
    inputs(encoder=None),
    inputs(encoder={"type": "passthrough", "num_layers": 2}),
    inputs(encoder={"type": "dense", "num_layers": 0}),
    inputs(encoder={"type": "dense", "dropout": 1}),
    inputs(preprocessing={"normalization": "z"}),
    inputs(preprocessing=None),
    {"output_features": [{"name": "y", "type": "number", "clip": [0]}]},
    {"output_features": [{"name": "y", "type": "text"}]},
    {"input_features": [{"name": "t", "type": "text", "encoder": {"type": "parallel_cnn", "filter_sizes": [0]}}]},
    {"combiner": 3},
    {"combiner": {"type": "transformer", "num_layer": 3}},
    {"trainer": {"epochs": "3"}},
    {"trainer": {"epochs": True}},
    {"trainer": {"epochs": 1.5}},
    {"trainer": {"learning_rate": 0}},
    {"trainer": {"should_shuffle": "on"}},
    {"trainer": {"optimizer": {"momentum": 0.9, "type": "adam"}}},
    {"preprocessing": {"split": "hash"}},
    {"preprocessing": {"split": {"type": "hash"}}},
    {"preprocessing": {"sample_ratio": 1.5}},
    {"defaults": {"nmber": {}}},
    {"defaults": {"number": {"encoder": "dens"}}},
    {"backend": "rey"},
    {"backend": {"trainer": {"strategy": {"bucket_cap_mb": 3}}}},
    {"backend": {"trainer": {"strategy": "no-such-strategy"}}},
    {"backend": {"trainer": {"resources_per_worker": {"CPU": "1"}}}},
    {"backend": {"loader": {"window_size_bytes": 0}}},
    {"backend": {"cache_credentials": 3}},
    {"model_type": "gbm"},
]

# Right by the schema, and refused: what JSON Schema has no words for.
BEYOND_A_SCHEMA: list[dict[str, Any]] = [
    {"trainer": {"epochs": 3.0}},  # an integer to JSON Schema
    {"trainer": {"learning_rate": float("inf")}},
    {"trainer": {"epochs": "${NO_SUCH_VARIABLE}"}},
    {"trainer": {"batch_size": 2, "batch_size_per_worker": 2}},
    {"trainer": {"validation_metric": "f1"}},
    {"preprocessing": {"split": {"probabilities": [0.5, 0.2, 0.2]}}},
    {"input_features": [NUMBER, NUMBER]},
    {"input_features": [NUMBER], "output_features": [NUMBER]},
    {"combiner": {"type": "transformer", "hidden_size": 10, "num_heads": 3}},
]


def accepted(minimal: dict[str, Any], sections: dict[str, Any]) -> bool:
    try:
        load(minimal | sections)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("sections", GOOD, ids=str)
def test_schema_and_core_accept_the_same(minimal, validator: jsonschema.Draft7Validator, sections) -> None:
    assert [error.message for error in validator.iter_errors(minimal | sections)] == []
    assert accepted(minimal, sections)


@pytest.mark.parametrize("sections", BAD, ids=str)
def test_schema_and_core_refuse_the_same(minimal, validator: jsonschema.Draft7Validator, sections) -> None:
    assert not validator.is_valid(minimal | sections)
    assert not accepted(minimal, sections)


@pytest.mark.parametrize("sections", BEYOND_A_SCHEMA, ids=str)
def test_core_refuses_more_than_a_schema_can_say(minimal, validator: jsonschema.Draft7Validator, sections) -> None:
    assert validator.is_valid(minimal | sections)
    assert not accepted(minimal, sections)


def test_a_resolved_config_fits_the_schema(minimal, validator: jsonschema.Draft7Validator) -> None:
    assert validator.is_valid(resolved(load(minimal)))


def test_published_configs_fit_the_schema(validator: jsonschema.Draft7Validator) -> None:
    text = (Path(__file__).parent / "cases" / "ludwig-config.yaml").read_text()

    assert validator.is_valid(parse(text, "ludwig").data)


def keys(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, section in node["definitions"].items():
        for key, value in section["properties"].items():
            yield f"{name}.{key}", value


def test_every_key_is_described_with_bounds_and_default() -> None:
    written = schema()

    undescribed = [path for path, key in keys(written) if "description" not in key and "const" not in key]
    assert undescribed == []
    learning_rate = dict(keys(written))["Trainer.learning_rate"]
    assert (learning_rate["default"], learning_rate["exclusiveMinimum"]) == (0.001, 0)
    assert dict(keys(written))["Trainer.optimizer"]["default"] == "adam"
    assert written["required"] == ["input_features", "output_features"]


@attrs.frozen(kw_only=True)
class Options(StrategyOptions):
    """Options of a strategy from elsewhere."""

    period: int = attrs.field(default=3, validator=attrs.validators.ge(1), metadata={"doc": "Steps apart."})
    others: dict[str, Any] = attrs.field(factory=dict, metadata={"doc": "Passed on.", "extra": True})


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = StrategySpec(name="sometimes", summary="", implementation="nowhere:Nothing", options=Options)
    record = Record(kind="strategy", name="sometimes", status="ok", dist="other", version="1", spec=spec)
    extended = Registry((*registry().records, record))
    monkeypatch.setattr("core.registry.registry", lambda: extended)


@pytest.mark.parametrize(
    ("strategy", "right"),
    [
        ("sometimes", True),
        ({"type": "sometimes", "period": 2, "zero": {"stage": 3}}, True),
        ({"type": "sometimes", "period": 0}, False),
        ({"type": "sometimes", "period": "2"}, False),
        ({"type": "single", "zero": {"stage": 3}}, False),
    ],
)
@pytest.mark.usefixtures("plugin")
def test_options_of_a_plugin_are_checked_like_cores_own(minimal, strategy: Any, right: bool) -> None:
    backend = {"backend": {"trainer": {"strategy": strategy}}}

    assert jsonschema.Draft7Validator(schema()).is_valid(minimal | backend) is right
    assert accepted(minimal, backend) is right


@pytest.mark.usefixtures("plugin")
def test_what_a_plugin_takes_unchecked_is_written_back(minimal) -> None:
    strategy = {"type": "sometimes", "period": 3, "zero": {"stage": 3}}

    config = load(minimal | {"backend": {"trainer": {"strategy": strategy}}})

    assert config.backend.trainer.strategy.options.others == {"zero": {"stage": 3}}
    assert resolved(config)["backend"]["trainer"]["strategy"] == strategy


def test_the_command_prints_it_or_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schema.json"

    assert main(["schema"]) == 0
    assert main(["schema", "--output", str(file)]) == 0

    printed = capsys.readouterr().out
    assert printed == file.read_text()
    assert json.loads(printed)["$schema"] == DRAFT
