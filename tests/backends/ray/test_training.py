"""Training on the shared cluster: the numbers of one machine, and what happens to workers that die, fail or hang."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from core.backends.ray import cluster
from core.errors import ConfigError, Interrupted, NonFiniteLoss, WorkerFailed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def weights(run):
    return load_file(Path(run.model_path) / "model.safetensors")


def assert_same(run, expected):
    for name, tensor in weights(expected).items():
        assert weights(run)[name].equal(tensor), name


def test_a_cluster_gives_the_numbers_of_one_machine(config, train, watch, expected, capfd, tmp_path):
    # given: logs elsewhere, and as many workers as the cluster has CPUs
    import ray

    asked = []
    logdir = tmp_path / "elsewhere"
    config["backend"]["trainer"] |= {"logdir": str(logdir)}
    groups = lambda: asked.extend(  # noqa: E731
        list(group["bundles"].values())
        for group in ray.util.placement_group_table().values()
        if group["state"] == "CREATED"
    )
    watched = watch(at=1, act=groups)
    # when
    run = train(config, watched)
    # then
    assert watched.losses == expected[1]
    assert_same(run, expected[0])
    assert run.metrics("test") == expected[0].metrics("test")
    assert asked == [[{"CPU": 1.0}, {"CPU": 1.0}]]
    logs = logdir / run.output_directory.name / "logs"
    assert sorted(path.name for path in logs.iterdir()) == ["worker-0.log", "worker-1.log"]
    out, err = capfd.readouterr()
    assert "ray" not in (out + err).lower().replace("array", "")


def test_a_killed_worker_is_restarted_from_the_last_checkpoint(config, train, watch, expected, processes, caplog):
    config["backend"]["trainer"] |= {"max_retries": 1}
    run = train(config, watch(at=2, act=lambda: os.kill(processes()[-1], signal.SIGKILL)))
    assert_same(run, expected[0])
    assert "or its node was lost" in caplog.text
    assert "restarting the workers from the last checkpoint" in caplog.text


def test_batches_through_ray_data_are_the_same_also_when_their_actor_is_lost(config, train, watch, expected, caplog):
    # given: workers that hold every CPU of the cluster while Ray Data reads for them
    import ray

    def kill_feeds():
        for name in ray.util.list_named_actors():
            if name.startswith("core-feed-"):
                ray.kill(ray.get_actor(name))

    config["backend"]["loader"] = {"type": "ray", "fully_executed": False}
    config["backend"]["trainer"] |= {"max_retries": 1}
    # when
    run = train(config, watch(at=2, act=kill_feeds))
    # then
    assert_same(run, expected[0])
    assert run.metrics("test") == expected[0].metrics("test")
    assert "the actor that reads for the workers" in caplog.text
    assert not [name for name in ray.util.list_named_actors() if name.startswith("core-feed-")]


def test_without_retries_a_killed_worker_ends_the_run_and_it_can_go_on(config, train, watch, expected, processes):
    # when
    with pytest.raises(WorkerFailed, match="was killed") as raised:
        train(config, watch(at=2, act=lambda: os.kill(processes()[0], signal.SIGKILL)))
    # then: it goes on without Ray
    assert "core train --model-resume-path" in raised.value.hint
    stopped = raised.value.hint.split()[-1]
    config["backend"] = {"type": "local", "trainer": {"num_workers": 2}}
    assert_same(train(config, model_resume_path=stopped), expected[0])
    assert processes() == []


def test_an_error_of_the_users_is_not_tried_again(config, train, processes):
    config["trainer"]["learning_rate"] = 1e30
    config["backend"]["trainer"] |= {"max_retries": 3}
    started = time.monotonic()
    with pytest.raises(NonFiniteLoss) as raised:
        train(config)
    assert raised.value.path == "trainer.learning_rate"
    assert time.monotonic() - started < 120
    assert processes() == []


def test_a_worker_that_hangs_ends_the_run(config, train, watch, processes):
    config["backend"]["trainer"] |= {"strategy": {"type": "ddp", "timeout_s": 4}}
    with pytest.raises(WorkerFailed, match="nothing was heard of worker"):
        train(config, watch(at=1, act=lambda: os.kill(processes()[-1], signal.SIGSTOP)))


def test_an_interrupted_run_goes_on(config, train, watch, expected, processes):
    with pytest.raises(Interrupted) as raised:
        train(config, watch(at=2, act=lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert "a checkpoint was written" in str(raised.value)
    assert processes() == []
    stopped = raised.value.hint.split()[-1]
    assert_same(train(config, model_resume_path=stopped), expected[0])


def test_a_retry_does_not_wait_for_ever_for_lost_nodes(monkeypatch):
    monkeypatch.setattr(cluster, "LOST_SECONDS", 0.5)
    with pytest.raises(WorkerFailed, match="find no place any more") as raised:
        cluster.wait_for_room(3, {"CPU": 1.0})
    assert raised.value.path == "backend.trainer.num_workers"


@pytest.mark.parametrize(
    ("trainer", "path"),
    [
        ({"num_workers": 3}, "backend.trainer.num_workers"),
        ({"resources_per_worker": {"CPU": 1, "tape": 1}}, "backend.trainer.resources_per_worker.tape"),
        ({"use_gpu": True}, "backend.trainer.use_gpu"),
        ({"use_gpu": False, "resources_per_worker": {"GPU": 1}}, "backend.trainer.resources_per_worker.GPU"),
        ({"resources_per_worker": {"CPU": 0}}, "backend.trainer.resources_per_worker"),
    ],
)
def test_what_cannot_be_placed_is_said_at_once(config, train, tmp_path, trainer, path):
    config["backend"]["trainer"] |= trainer
    started = time.monotonic()
    with pytest.raises(ConfigError) as raised:
        train(config)
    assert raised.value.path == path
    assert time.monotonic() - started < 10
    assert not (tmp_path / "results").exists()
