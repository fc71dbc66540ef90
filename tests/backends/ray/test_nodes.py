"""A cluster of several nodes, each with a disk of its own, reached by the command line."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

START_SECONDS = 120


@attrs.frozen
class Nodes:
    """A head without CPUs for workers, and two nodes that do not see `hidden`.

    Attributes:
        environment: of commands that shall find the cluster by themselves.
        client: its address for drivers that are no part of it.
        pids: of the two nodes.
    """

    environment: dict[str, str]
    client: str
    pids: list[int]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory) -> Path:
    """A folder of the driver's machine: for the other nodes it is empty."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def nodes(hidden: Path) -> Iterator[Nodes]:
    ray = shutil.which("ray", path=sysconfig.get_path("scripts"))
    if ray is None:
        pytest.skip("Ray is not installed")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a node's disk can only be hidden from others by root")
    folder = tempfile.mkdtemp(prefix="ray-")  # short: sockets lie in it
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "120"}
    port, client = _free_ports()
    common = ["--object-store-memory=100000000", "--disable-usage-stats", "--block"]
    head = [ray, "start", "--head", f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=1"]
    node = [ray, "start", f"--address=127.0.0.1:{port}", "--num-cpus=1", "--resources", '{"site": 1}', *common]
    hiding = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs tmpfs "{hidden}" && exec "$0" "$@"']
    started: list[subprocess.Popen[bytes]] = []
    try:
        for index, command in enumerate([[*head, "--include-dashboard=false", *common], hiding + node, hiding + node]):
            log = Path(folder, f"{index}.log")
            with open(log, "wb") as file:
                started.append(
                    subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
                )
            _wait_until(lambda log=log: "Ray runtime started" in log.read_text(errors="replace"), log)
        yield Nodes(environment, f"ray://127.0.0.1:{client}", [process.pid for process in started[1:]])
    finally:
        for process in reversed(started):
            kill_tree(process.pid)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports() -> list[int]:
    """Below the ports that Ray gives its workers."""
    found: list[int] = []
    for port in range(7100, 9900, 7):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                found.append(port)
        if len(found) == 2:
            return found
    raise AssertionError("no free port")


def _wait_until(happened: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not happened():
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.2)


def descendants(pid: int) -> list[int]:
    """A process and all below it, parents first."""
    found = [pid]
    for parent in found:
        found += [int(child) for child in _read(f"/proc/{parent}/task/{parent}/children").split()]
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # it has just ended
        return ""


def kill_tree(pid: int) -> None:
    for process in reversed(descendants(pid)):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def works(pid: int) -> bool:
    """Whether a training worker is among the processes of a node."""
    return any("ray::RayTrainWorker" in _read(f"/proc/{process}/cmdline") for process in descendants(pid))


@pytest.fixture(scope="module")
def arguments(hidden: Path, dataset: Path, untouched: dict[str, Any]) -> list[str]:
    """A run that is long enough to be hit, its data and results where only the driver sees them."""
    trainer = {**untouched["trainer"], "epochs": 15, "steps_per_checkpoint": 2}
    config = {key: value for key, value in untouched.items() if key != "backend"} | {"trainer": trainer}
    (hidden / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(dataset, hidden / "data.csv")
    return ["--config", str(hidden / "config.yaml"), "--dataset", str(hidden / "data.csv"), "--quiet"]


def train(arguments: list[str], output: Path, backend: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "core", "train", *arguments, "--output-directory", str(output), "-b", backend]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def weights(process: subprocess.Popen[str], output: Path):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return load_file(output / "experiment_run" / "model" / "model.safetensors"), errors


@pytest.fixture(scope="module")
def expected(arguments, hidden):
    """The weights of a worker on this machine."""
    backend = "{type: local, trainer: {strategy: ddp}}"
    return weights(train(arguments, hidden / "local", backend, dict(os.environ)), hidden / "local")[0]


def assert_same(actual, expected):
    for name, tensor in expected.items():
        assert actual[name].equal(tensor), name


def test_a_lost_node_is_survived_and_the_weights_come_home(nodes, arguments, hidden, expected):
    # given: no type, so the cluster is found by itself; the worker has to be on a node without our disk
    output = hidden / "lost"
    backend = "{processor: pandas, trainer: {resources_per_worker: {site: 1}, max_retries: 1}}"
    process = train(arguments, output, backend, nodes.environment)
    checkpoints = output / "experiment_run" / "checkpoints"
    deadline = time.monotonic() + START_SECONDS
    while not (checkpoints.is_dir() and list(checkpoints.glob("step-*/state.json"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # when
    (host,) = [pid for pid in nodes.pids if works(pid)]
    kill_tree(host)
    # then
    actual, errors = weights(process, output)
    assert "its node was lost" in errors
    assert "restarting the workers from the last checkpoint" in errors
    assert_same(actual, expected)


def test_a_driver_outside_the_cluster_gets_the_same(nodes, arguments, hidden, expected):
    backend = "{processor: pandas, trainer: {resources_per_worker: {site: 1}}}"
    environment = {**nodes.environment, "RAY_ADDRESS": nodes.client}
    process = train(arguments, hidden / "client", backend, environment)
    assert_same(weights(process, hidden / "client")[0], expected)
