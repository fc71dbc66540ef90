"""The driver's disk as the workers of a cluster without a shared one see it."""

from __future__ import annotations

import pytest
import torch

from core.backends.ray import files
from core.backends.ray.files import PROTOCOL, serve, use, within_reach
from core.errors import StorageError
from core.storage import Location
from core.training import checkpoint


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the driver, which is this process."""
    questions = []

    def ask(kind, content):
        questions.append((kind, *content[:2]))
        return serve(*content)

    use(ask)
    return questions


@pytest.fixture
def folder(asked, tmp_path):
    """`tmp_path`, reached through the driver."""
    return Location(f"{PROTOCOL}://{tmp_path}")


def test_files_are_written_and_read(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 1000)
    content = bytes(range(256)) * 100

    (folder / "deep").makedirs()
    (folder / "deep" / "a").write_atomic(content)

    assert (tmp_path / "deep" / "a").read_bytes() == content
    assert (folder / "deep" / "a").read_bytes() == content
    assert (folder / "deep" / "a").read_range(999, 2002) == content[999:2002]
    with (folder / "deep" / "a").open("rb") as file:
        file.seek(5000)
        assert file.read(3000) == content[5000:8000]
    assert folder.listdir() == ["deep"]
    assert (folder / "deep").listdir() == ["a"]
    assert (folder / "deep").is_dir()
    assert folder.sizes() == {"deep/a": len(content)}


def test_files_are_removed(folder, tmp_path):
    (tmp_path / "kept").write_text("")
    (tmp_path / "gone" / "deep").mkdir(parents=True)
    (tmp_path / "gone" / "deep" / "a").write_text("")

    (folder / "gone").remove()
    (folder / "never was").remove()

    assert folder.listdir() == ["kept"]
    assert not (folder / "gone").exists()


def test_a_write_that_breaks_off_leaves_the_old_file(folder, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(files, "CHUNK_BYTES", 1)

    def breaking(method, path, *arguments):
        if arguments == (b"3", "ab"):
            raise OSError(28, "No space left on device")
        return serve(method, path, *arguments)

    use(lambda kind, content: breaking(*content))

    with pytest.raises(StorageError, match="No space left"):
        (folder / "a").write_atomic(b"12345")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_what_is_missing_is_told_as_of_any_place(folder):
    with pytest.raises(StorageError, match="No such file"):
        (folder / "missing").read_bytes()
    assert (folder / "missing").listdir() == []


def test_a_checkpoint_goes_there_and_back(folder, tmp_path):
    state = {"model": {"w": torch.arange(3.0)}, "optimizer": {"state": {}, "param_groups": []}}
    progress = checkpoint.Progress(step=7)

    checkpoint.save(folder / "checkpoints", state, progress)

    found = checkpoint.latest(folder / "checkpoints")
    assert checkpoint.latest(Location(str(tmp_path / "checkpoints"))).name == found.name
    assert checkpoint.load_state(found)["model"]["w"].tolist() == [0.0, 1.0, 2.0]
    assert checkpoint.load_progress(found).step == 7


def test_a_shared_disk_is_used_as_it_is(asked, tmp_path):
    (tmp_path / "witness").write_text("written by the driver")
    place = Location(str(tmp_path))
    assert within_reach(place, "witness", lambda kind, content: serve(*content)) == place


def test_another_disk_with_a_folder_of_the_same_name_is_not_taken_for_the_drivers(asked, tmp_path):
    (tmp_path / "witness").write_text("of another run")
    theirs = {"size": 14, "mtime": (tmp_path / "witness").stat().st_mtime - 60}
    reached = within_reach(Location(str(tmp_path)), "witness", lambda kind, content: theirs)
    assert reached.url == f"{PROTOCOL}://{tmp_path}"


def test_a_url_is_within_reach_of_everyone(asked):
    place = Location("memory://bucket/results")
    assert within_reach(place, "witness", lambda kind, content: pytest.fail("asked for nothing")) is place
