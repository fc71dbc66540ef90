"""In exact mode the weights are the same to the last bit, whatever trains and on however many workers."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ConfigError
from core.registry import registry

GROUPS = [
    pytest.param(("ddp", 1)),
    pytest.param(("ddp", 2)),
    pytest.param(("ddp", 4)),
    pytest.param(
        ("horovod", 2),
        marks=pytest.mark.skipif(not registry().usable("strategy", "horovod"), reason="needs Horovod"),
    ),
]


@pytest.fixture
def config(config):
    """Whatever may depend on how rows are spread: dropout, batch statistics, norms, metrics that steer, small parts."""
    config["combiner"] |= {"dropout": 0.3, "norm": "batch"}
    config["trainer"] |= {
        "exact": True,
        "epochs": 3,
        "max_rows_per_device": 5,
        "regularization_lambda": 1e-3,
        "gradient_clipping": {"clipglobalnorm": 0.5},
        "learning_rate_scheduler": {"reduce_on_plateau": 2, "reduce_on_plateau_patience": 1},
        "eval_batch_size": 7,
    }
    return config


@pytest.fixture
def outcome(train, config):
    """Trains with a strategy on a number of workers: the bytes of the weights, every metric, and every step's loss."""

    def run(strategy: str, workers: int, **settings: Any) -> tuple[bytes, dict[str, Any], list[float]]:
        config["backend"]["trainer"] = {"strategy": strategy, "num_workers": workers}
        finished, losses = train(config, **settings)
        return (finished.model_path / "model.safetensors").read_bytes(), finished.training_statistics, losses

    return run


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: "{}-{}".format(*group))
def test_any_number_of_workers_gives_the_bytes_of_a_single_process(outcome, group):
    assert outcome(*group) == outcome("single", 1)


@pytest.mark.slow
def test_six_shards_and_mixed_precision(outcome, config):
    config["trainer"] |= {"exact_shards": 6, "use_mixed_precision": True, "evaluate_training_set": True}
    assert outcome("ddp", 2) == outcome("single", 1)


@pytest.mark.slow
def test_without_it_even_the_sums_differ(outcome, config):
    # given: nothing random, no batch statistics, so that the order of additions is all that is left
    config["trainer"]["exact"] = False
    config["combiner"] |= {"dropout": 0.0, "norm": None}
    # then
    assert outcome("single", 1)[0] != outcome("ddp", 2)[0]


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_workers(train, config, tmp_path):
    # given
    whole, _ = train(config)
    # when: an epoch on each of these
    resume: dict[str, Any] = {}
    for epochs, (strategy, workers) in enumerate([("ddp", 2), ("single", 1), ("ddp", 4)], start=1):
        config["trainer"]["epochs"] = epochs
        config["backend"]["trainer"] = {"strategy": strategy, "num_workers": workers}
        run, _ = train(config, experiment_name="parts", **resume)
        resume = {"model_resume_path": run.output_directory}
    # then
    assert run.training_statistics == whole.training_statistics
    for file in ("model/model.safetensors", *_checkpoint(whole)):
        assert (run.output_directory / file).read_bytes() == (whole.output_directory / file).read_bytes(), file


def _checkpoint(run: Any) -> list[str]:
    """The tensors of the run's last checkpoint: weights, and what the optimiser has learnt of them."""
    (folder,) = (run.output_directory / "checkpoints").listdir()
    return [f"checkpoints/{folder}/{name}.safetensors" for name in ("model", "optimizer")]


def test_the_seed_still_decides(outcome):
    assert outcome("single", 1, random_seed=1)[0] != outcome("single", 1, random_seed=2)[0]


def test_shards_are_part_of_what_is_computed(outcome, config):
    four = outcome("single", 1)[0]
    config["trainer"]["exact_shards"] = 2
    assert outcome("single", 1)[0] != four


@pytest.mark.parametrize(
    ("trainer", "backend", "expected"),
    [
        ({}, {"num_workers": 3}, "3 workers cannot take equal parts of 4 shards"),
        ({"exact_shards": 6}, {"num_workers": 4}, "expected 1, 2, 3 or 6 workers"),
        ({"compile": True}, {}, "cannot stand beside `compile`"),
        ({"batch_size": None, "batch_size_per_worker": 8}, {}, "cannot stand beside `batch_size_per_worker`"),
    ],
)
def test_what_cannot_be_exact_is_refused(train, config, trainer, backend, expected):
    config["trainer"] |= trainer
    config["backend"]["trainer"] = backend
    with pytest.raises(ConfigError, match=expected) as caught:
        train(config)
    assert caught.value.problems[0].path.endswith("trainer.exact")


@pytest.mark.parametrize("strategy", ["fsdp", "deepspeed"])
def test_strategies_that_cannot_keep_the_promise_are_refused_by_name(train, config, strategy):
    if not registry().usable("strategy", strategy):
        pytest.skip(f"needs {strategy}")
    config["backend"]["trainer"] = {"strategy": strategy, "num_workers": 2}
    with pytest.raises(ConfigError, match=f"strategy '{strategy}' cannot promise") as caught:
        train(config)
    problem = caught.value.problems[0]
    assert problem.path == "trainer.exact"
    assert "ddp" in problem.expected


def test_shards_without_exact_mode_are_said_not_to_apply(train, config, caplog):
    caplog.set_level("INFO", logger="core")
    config["trainer"] |= {"exact": False, "exact_shards": 8, "epochs": 1}
    train(config)
    assert "trainer.exact_shards does not apply" in caplog.text
