"""Finding a cluster, and what has room on it. None is started here."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from core.backends.detect import answers, ray_address
from core.backends.placement import place
from core.backends.ray.cluster import Cluster, check_room
from core.config import load
from core.config.sections import Backend
from core.errors import ConfigError, UserError

TWO_NODES = Cluster(address="10.0.0.1:6379", nodes=[{"CPU": 4.0, "memory": 1e9}, {"CPU": 2.0, "GPU": 1.0, "disk": 3.0}])


def backend(**section: object) -> Backend:
    config = {
        "input_features": [{"name": "a", "type": "number"}],
        "output_features": [{"name": "b", "type": "number"}],
        "backend": section,
    }
    return load(config).backend


@pytest.fixture
def listening() -> Iterator[str]:
    """An address where something answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where nothing does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _nothing_to_join(monkeypatch):
    """Neither an address nor the cluster that tests before these may have started in this process."""
    monkeypatch.delenv("RAY_ADDRESS")
    for module in ("placement", "ray.cluster"):
        monkeypatch.setattr(f"core.backends.{module}.in_ray_session", lambda: False)


def test_what_ray_start_left_is_found_where_ray_keeps_it(tmp_path):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379\n")
    there = {"RAY_TMPDIR": str(tmp_path)}

    assert ray_address(there) == "10.0.0.1:6379"
    assert ray_address({**there, "RAY_ADDRESS": "auto"}) == "10.0.0.1:6379"
    assert ray_address({**there, "RAY_ADDRESS": "ray://a:10001"}) == "ray://a:10001"
    assert ray_address({**there, "RAY_ADDRESS": "local"}) is None
    assert ray_address({"RAY_TMPDIR": str(tmp_path / "other")}) is None


def test_an_address_is_tried_before_ray_waits_for_it(listening, closed):
    assert answers(listening)
    assert answers(f"ray://{listening}")
    assert not answers(closed)
    assert not answers("nonsense")


def test_without_a_type_a_cluster_that_answers_is_taken(monkeypatch, listening):
    # given: an address at which no Ray is, so that joining it fails, but only after it was chosen
    monkeypatch.setenv("RAY_ADDRESS", listening)
    # when
    from core.backends.placement import _kind

    # then
    assert _kind(backend(), None) == ("ray", f"a Ray cluster answers at {listening}")
    assert _kind(backend(type="local"), None) == ("local", "backend.type")
    assert _kind(backend(), "torchrun") == ("local", "started by torchrun")


def test_a_dead_address_is_said_and_the_job_runs_here(monkeypatch, closed, caplog):
    monkeypatch.setenv("RAY_ADDRESS", closed)
    assert place(backend(trainer={"use_gpu": False})).kind == "local"
    assert "does not answer" in caplog.text


def test_a_dead_address_is_an_error_where_ray_is_asked_for(monkeypatch, closed):
    monkeypatch.setenv("RAY_ADDRESS", closed)
    with pytest.raises(UserError) as raised:
        place(backend(type="ray"))
    assert raised.value.path == "RAY_ADDRESS"
    assert raised.value.found == closed
    assert "ray start --head" in raised.value.hint


def test_ray_under_another_launcher_is_refused(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="torchrun started") as raised:
        place(backend(type="ray"))
    assert raised.value.path == "backend.type"


@pytest.mark.parametrize(
    ("resources", "room"),
    [
        ({"CPU": 1.0}, 6),
        ({"CPU": 3.0}, 1),
        ({"CPU": 0.5}, 12),
        ({"CPU": 1.0, "GPU": 1.0}, 1),
        ({"CPU": 1.0, "GPU": 0.0}, 6),
        ({"CPU": 0.1, "disk": 1.0}, 3),
        ({"CPU": 1.0, "tape": 1.0}, 0),
    ],
)
def test_room_is_counted_node_by_node(resources, room):
    assert TWO_NODES.room(resources) == room


def test_a_cluster_that_grows_has_the_room_it_may_grow_to():
    growing = Cluster(address="10.0.0.1:6379", nodes=[{"CPU": 1.0}], expected={"CPU": 64.0, "GPU": 8.0})
    assert growing.room({"CPU": 2.0, "GPU": 1.0}) == 8
    assert growing.total("GPU") == 8


@pytest.mark.parametrize(
    ("workers", "resources", "path", "found"),
    [
        (7, {"CPU": 1.0}, "backend.trainer.num_workers", 7),
        (2, {"CPU": 1.0, "GPU": 1.0}, "backend.trainer.num_workers", 2),
        (1, {"CPU": 1.0, "GPU": 2.0}, "backend.trainer.use_gpu", 2.0),
        (1, {"CPU": 1.0, "tape": 1.0}, "backend.trainer.resources_per_worker.tape", 1.0),
        (1, {"CPU": 5.0}, "backend.trainer.num_workers", 1),
    ],
)
def test_what_can_never_be_placed_is_refused_with_what_there_is(workers, resources, path, found):
    with pytest.raises(ConfigError) as raised:
        check_room(TWO_NODES, workers, resources)
    assert raised.value.path == path
    assert raised.value.found == found
    assert "2 nodes with 4 CPU; 2 CPU, 1 GPU, 3 disk" in str(raised.value)


def test_what_has_room_is_not_refused():
    check_room(TWO_NODES, 6, {"CPU": 1.0})
