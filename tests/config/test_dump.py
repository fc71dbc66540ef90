from __future__ import annotations

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from core.config import Config, load, loads, model_config, redacted, resolved
from core.features import INPUTS, OUTPUTS
from core.model.combiners import COMBINERS
from core.training.optimizers import OPTIMIZERS

NAMES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=6), st.just("${x}")
)
LEARNING_RATES = st.floats(1e-12, 1e3)
COUNTS = st.integers(1, 10**6)


def optional(keys: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(
        st.lists(
            NAMES.filter(lambda name: name.isprintable() and name.strip() and name != "combined"),
            min_size=2,
            max_size=5,
            unique=True,
        )
    )
    names = [name.replace("${", "$${") for name in names]
    outputs = draw(st.integers(1, len(names) - 1))
    numbers = {"number": {"preprocessing": {"normalization": draw(st.sampled_from(["minmax", None]))}}}
    return {
        "output_features": [{"name": n, "type": draw(st.sampled_from(sorted(OUTPUTS)))} for n in names[:outputs]],
        "input_features": [{"name": n, "type": draw(st.sampled_from(sorted(INPUTS)))} for n in names[outputs:]],
        "combiner": draw(st.sampled_from(sorted(COMBINERS))),
        "defaults": draw(st.sampled_from([{}, numbers])),
        "trainer": draw(
            optional(
                {
                    "learning_rate": LEARNING_RATES,
                    "epochs": COUNTS,
                    "batch_size": st.one_of(st.none(), COUNTS),
                    "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
                    "gradient_clipping": st.sampled_from([None, {}, {"clipglobalnorm": None}]),
                    "should_shuffle": st.booleans(),
                }
            )
        ),
        "preprocessing": draw(
            optional(
                {
                    "split": st.sampled_from(["random", {"type": "hash", "column": "id"}]),
                    "sample_ratio": st.floats(0.01, 1),
                }
            )
        ),
        "backend": draw(
            optional(
                {
                    "type": st.sampled_from(["local", "ray"]),
                    "cache_dir": st.one_of(st.none(), NAMES.map(lambda name: name.replace("${", "$${"))),
                    "processor": st.sampled_from([None, {"type": "pandas", "parallelism": 3}]),
                    "trainer": optional({"strategy": st.just("single"), "resources_per_worker": st.just({"TPU": 0.5})}),
                    "loader": optional({"window_size_bytes": COUNTS}),
                }
            )
        ),
    }


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(configs())
def test_a_resolved_config_is_read_back_as_it_was(data: dict[str, Any]) -> None:
    config = load(data)
    plain = resolved(config)

    assert load(plain) == config
    assert loads(json.dumps(plain, ensure_ascii=False)) == config
    assert resolved(load(plain)) == plain


def test_every_default_is_written_out_with_its_type(minimal) -> None:
    plain = resolved(load(minimal))

    assert plain["combiner"]["type"] == "concat"
    assert plain["combiner"]["num_fc_layers"] == 2
    assert plain["input_features"][0]["encoder"]["type"] == "passthrough"
    assert plain["trainer"]["optimizer"]["type"] == "adam"
    assert plain["backend"]["loader"] == {"type": "memory", "fully_executed": True, "window_size_bytes": None}


def test_a_model_remembers_everything_but_the_backend(minimal) -> None:
    config = load(minimal | {"backend": {"type": "ray"}, "trainer": {"epochs": 2}})

    remembered = load(model_config(config))

    assert remembered == load(minimal | {"trainer": {"epochs": 2}})


@pytest.mark.parametrize(
    "credentials",
    [
        {"s3": {"key": "hunter2", "secret": "hunter2", "client_kwargs": {"tokens": ["hunter2"], "port": 5}}},
        "/home/hunter2.json",
    ],
)
def test_a_description_holds_no_secret(minimal, monkeypatch: pytest.MonkeyPatch, credentials: Any) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    backend = {
        "cache_credentials": credentials,
        "cache_dir": "s3://user:${PASSWORD}@bucket/cache",
        "trainer": {"logdir": "ftp://user:hunter2@host/logs"},
    }
    config: Config = load(minimal | {"backend": backend})

    shown = redacted(config)

    assert "hunter2" not in json.dumps(shown)
    assert shown["backend"]["cache_dir"] == "s3://***@bucket/cache"
    assert "hunter2" in json.dumps(resolved(config))


def test_credentials_are_not_in_the_repr_that_a_traceback_would_show(minimal) -> None:
    config = load(minimal | {"backend": {"cache_credentials": {"s3": {"key": "hunter2"}}}})

    assert "hunter2" not in repr(config)


def test_a_description_without_credentials_says_so(minimal) -> None:
    assert redacted(load(minimal))["backend"]["cache_credentials"] is None
