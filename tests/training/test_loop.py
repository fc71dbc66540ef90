"""What a run does as a whole: learns, stops, keeps the best, and fails as it should."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import core
from core.errors import ConfigError, DataError, NonFiniteLoss


class Events(core.Callback):
    """Remembers what happened, in order."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen: list[str] = []
        self.stop_after = stop_after

    def on_train_start(self, **details: Any) -> None:
        self.seen.append("train_start")

    def on_epoch_end(self, *, epoch: int, **details: Any) -> None:
        self.seen.append(f"epoch_end {epoch}")

    def on_checkpoint(self, *, step: int, **details: Any) -> None:
        self.seen.append(f"checkpoint {step}")

    def on_train_end(self, **details: Any) -> None:
        self.seen.append("train_end")

    def should_stop(self) -> bool:
        return self.stop_after is not None and self.seen[-1] == f"epoch_end {self.stop_after}"


def test_it_learns(train, config):
    config["trainer"]["epochs"] = 20
    run, losses = train(config)
    assert sum(losses[-5:]) < sum(losses[:5]) * 0.7
    assert run.metrics("validation")["label"]["accuracy"] > 0.8


def test_a_run_folder_holds_what_is_promised(train, config):
    run, _ = train(config)
    names = {path.name for path in Path(run.output_directory).iterdir()}
    assert {"description.json", "training_statistics.json", "learning_curves.png", "model", "checkpoints"} <= names
    model = {path.name for path in Path(run.model_path).iterdir()}
    assert model == {"model.safetensors", "config.json", "metadata.json"}
    statistics = json.loads((run.output_directory / "training_statistics.json").read_bytes())
    assert set(statistics) == {"training", "validation", "test"}
    assert all(len(values) == 3 for values in statistics["validation"]["label"].values())
    assert (run.output_directory / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_run_gets_a_folder_of_its_own(train, config):
    config["trainer"]["epochs"] = 1
    names = [train(config)[0].output_directory.name for _ in range(3)]
    assert names == ["experiment_run", "experiment_run_1", "experiment_run_2"]


@pytest.mark.parametrize("workers", [1, 2])
def test_callbacks_hear_of_a_run_on_the_coordinator(train, config, workers):
    events = Events()
    config["trainer"]["epochs"] = 2
    config["backend"]["trainer"] = {"num_workers": workers}
    train(config, callbacks=(events,))
    assert events.seen == [
        "train_start",
        "epoch_end 0",
        "checkpoint 5",
        "epoch_end 1",
        "checkpoint 10",
        "train_end",
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_callback_can_stop_a_run(train, config, workers):
    events = Events(stop_after=1)
    config["trainer"]["epochs"] = 50
    config["backend"]["trainer"] = {"num_workers": workers}
    _, losses = train(config, callbacks=(events,))
    assert len(losses) == 2 * 5
    assert events.seen[-1] == "train_end"


def test_train_steps_override_epochs(train, config):
    config["trainer"]["train_steps"] = 7
    assert len(train(config)[1]) == 7


@pytest.mark.parametrize(("key", "rounds"), [({"steps_per_checkpoint": 2}, 3), ({"checkpoints_per_epoch": 2}, 3)])
def test_evaluations_inside_an_epoch(train, config, key, rounds):
    config["trainer"] |= {"epochs": 1, **key}
    run, _ = train(config)
    assert len(run.training_statistics["validation"]["label"]["loss"]) == rounds


def test_early_stopping_keeps_the_best_weights(train, config):
    # given: a rate so high that the model soon gets worse
    config["trainer"] |= {"epochs": 60, "early_stop": 3, "learning_rate": 0.3, "validation_metric": "roc_auc"}
    run, _ = train(config)
    # then
    auc = run.training_statistics["validation"]["label"]["roc_auc"]
    assert len(auc) < 60
    assert run.best_round == auc.index(max(auc)) == len(auc) - 1 - 3
    model = core.Model.load(run.model_path)
    metrics, _ = model.evaluate(run.datasets.dataset, split="validation")
    assert metrics["label"]["roc_auc"] == pytest.approx(max(auc))


def test_without_validation_rows_the_last_weights_are_kept(train, config):
    config["preprocessing"]["split"]["probabilities"] = [1, 0, 0]
    run, _ = train(config)
    assert set(run.training_statistics) == {"training"}
    assert run.best_round == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_not_finite_ends_every_worker(train, config, workers):
    config["trainer"] |= {"learning_rate": 1e30, "optimizer": {"type": "sgd"}, "gradient_clipping": None}
    config["backend"]["trainer"] = {"num_workers": workers}
    with pytest.raises(NonFiniteLoss, match=r"the loss became (nan|inf) in step \d+") as caught:
        train(config)
    assert "learning_rate" in caught.value.hint


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "nadam", "adamax", "adagrad", "adadelta", "rmsprop"])
def test_every_optimizer_lowers_the_loss(train, config, optimizer):
    config["trainer"] |= {"epochs": 4, "optimizer": {"type": optimizer}}
    config["trainer"]["learning_rate"] = {"sgd": 0.5, "adadelta": 5.0}.get(optimizer, 0.01)
    run, _ = train(config)
    by_epoch = run.training_statistics["training"]["label"]["loss"]
    assert by_epoch[-1] < by_epoch[0]


def test_an_optimizer_torch_refuses_is_a_config_error(train, config):
    config["trainer"]["optimizer"] = {"type": "sgd", "nesterov": True}
    with pytest.raises(ConfigError, match="momentum") as caught:
        train(config)
    assert caught.value.path == "trainer.optimizer"


def test_mixed_precision_stays_close_and_keeps_float32_weights(train, config):
    _, expected = train(config)
    config["trainer"]["use_mixed_precision"] = True
    run, losses = train(config)
    assert losses != expected
    assert losses == pytest.approx(expected, rel=0.05)
    assert all(str(t.dtype) == "torch.float32" for t in load_file(run.model_path / "model.safetensors").values())


def test_regularisation_shrinks_the_weights(train, config):
    def size(run: Any) -> float:
        weights = load_file(run.model_path / "model.safetensors")
        return math.fsum(float(t.square().sum()) for name, t in weights.items() if t.ndim > 1)

    free = size(train(config)[0])
    config["trainer"] |= {"regularization_lambda": 0.1}
    alone, losses = train(config)
    config["backend"]["trainer"] = {"num_workers": 2}
    assert train(config)[1] == pytest.approx(losses, rel=1e-5)
    assert size(alone) < free * 0.8


def test_starting_from_the_weights_of_another_run(train, config):
    first, losses = train(config)
    _, continued = train(config, model_load_path=first.model_path)
    assert sum(continued[:5]) < sum(losses[:5])


def test_weights_that_do_not_fit_are_refused(train, config):
    first, _ = train(config)
    config["combiner"]["output_size"] = 8
    with pytest.raises(ConfigError, match="do not fit"):
        train(config, model_load_path=first.model_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiling_changes_nothing(train, config):
    config["trainer"]["epochs"] = 1
    _, expected = train(config)
    config["trainer"]["compile"] = True
    run, losses = train(config)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert not any("_orig_mod" in name for name in load_file(run.model_path / "model.safetensors"))


@pytest.mark.parametrize("call", ["predict", "evaluate"])
def test_a_split_without_rows_is_refused(train, config, call):
    config["preprocessing"]["split"]["probabilities"] = [1, 0, 0]
    run, _ = train(config)
    model = core.Model.load(run.model_path)
    with pytest.raises(DataError, match="no row of the dataset is in the test split"):
        getattr(model, call)(run.datasets.dataset, split="test")
