"""Runs that are killed, interrupted or lose a worker go on to the weights they would have had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

EPOCHS = 60


@pytest.fixture
def long_run(config, dataset, tmp_path):
    """A run that is long enough to be hit, with dropout, so that a lost random state would show."""
    config["combiner"]["dropout"] = 0.2
    config["trainer"] |= {"epochs": EPOCHS, "early_stop": -1, "steps_per_checkpoint": 2}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return ["--config", str(path), "--dataset", str(dataset)]


def start(arguments: list[str], output: Path, workers: int) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "core", "train", *arguments, "--output-directory", str(output),
        "--backend", f"{{trainer: {{num_workers: {workers}}}}}", "--quiet",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(arguments: list[str], output: Path, workers: int) -> dict[str, Any]:
    process = start(arguments, output, workers)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return load_file(output / "experiment_run" / "model" / "model.safetensors")


def wait_for_steps(output: Path, process: subprocess.Popen[str]) -> None:
    """Until some checkpoints were written, and well before the end."""
    for _ in range(1500):
        steps = [int(path.name.split("-")[1]) for path in output.glob("experiment_run/checkpoints/step-*")]
        if steps and max(steps) >= 10:
            assert max(steps) < EPOCHS * 5, "the run is too short for this machine"
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("no checkpoint in 30 seconds")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def assert_equal(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].equal(tensor), name


@pytest.mark.parametrize(("how", "workers"), [(signal.SIGKILL, 1), (signal.SIGINT, 2)])
def test_a_stopped_run_continues_to_the_same_weights(long_run, tmp_path, how, workers):
    # given
    expected = finish(long_run, tmp_path / "whole", workers)
    # when: the whole process is hit
    process = start(long_run, tmp_path / "stopped", workers)
    wait_for_steps(tmp_path / "stopped", process)
    group = children(process.pid)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    # then
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "a checkpoint was written" in errors
        assert "core train --model-resume-path" in errors
        assert "Traceback" not in errors
    assert_gone(group)
    resumed = ["--model-resume-path", str(tmp_path / "stopped" / "experiment_run")]
    assert_equal(finish(resumed, tmp_path / "stopped", workers), expected)


def test_a_killed_worker_ends_the_run_and_it_can_go_on(long_run, tmp_path):
    # given
    expected = finish(long_run, tmp_path / "whole", 2)
    process = start(long_run, tmp_path / "broken", 2)
    wait_for_steps(tmp_path / "broken", process)
    group = children(process.pid)
    # when
    os.kill(group[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    # then
    assert process.returncode == 1
    assert "was killed by SIGKILL" in errors
    assert "worker-1.log" in errors
    assert "Traceback" not in errors.split("the end of its log")[0]
    assert_gone(group)
    resumed = ["--model-resume-path", str(tmp_path / "broken" / "experiment_run")]
    assert_equal(finish(resumed, tmp_path / "broken", 2), expected)


def test_a_killed_worker_is_restarted_where_that_is_asked_for(long_run, tmp_path):
    expected = finish(long_run, tmp_path / "whole", 2)
    process = start([*long_run, "--set", "backend.trainer.max_retries=1"], tmp_path / "broken", 2)
    wait_for_steps(tmp_path / "broken", process)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert_equal(load_file(tmp_path / "broken" / "experiment_run" / "model" / "model.safetensors"), expected)


def assert_gone(processes: list[int]) -> None:
    for _ in range(100):
        left = [pid for pid in processes if Path(f"/proc/{pid}").exists() and not is_zombie(pid)]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"processes left behind: {left}")


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_group_started_by_torchrun_equals_a_group_of_our_own(long_run, tmp_path):
    expected = finish([*long_run, "--set", "trainer.epochs=4"], tmp_path / "own", 2)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "core", "train", *long_run, "--set", "trainer.epochs=4",
        "--output-directory", str(tmp_path / "launched"), "--quiet",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best weights") == 1, "one worker speaks for the run"
    assert [path.name for path in (tmp_path / "launched").iterdir()] == ["experiment_run"]
    assert_equal(load_file(tmp_path / "launched" / "experiment_run" / "model" / "model.safetensors"), expected)
