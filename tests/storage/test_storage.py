"""Places: local, by URL, full, forbidden, and with secrets."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import StorageError
from core.storage import Location, is_url, user_cache


@pytest.fixture(params=["local", "file", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    return Location(
        {"local": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path.name}"}[request.param]
    )


def test_what_is_written_can_be_listed_read_replaced_and_removed(folder: Location) -> None:
    file = folder.join("a", "b.bin")

    file.write_atomic(b"one")
    file.write_atomic(b"two")

    assert file.read_bytes() == b"two"
    assert file.exists()
    assert file.parent.is_dir()
    assert file.info()["size"] == 3
    assert (file.name, file.parent.name) == ("b.bin", "a")
    assert folder.join("a").listdir() == ["b.bin"]
    folder.join("a").remove()
    folder.join("a").remove()
    assert not file.exists()
    assert folder.join("a").listdir() == []


def test_a_write_that_fails_leaves_the_old_content(folder: Location) -> None:
    file = folder.join("a.bin")
    file.write_atomic(b"old")

    with pytest.raises(ZeroDivisionError), file.writing() as stream:
        stream.write(bytes([1 // 0]))

    assert file.read_bytes() == b"old"
    assert folder.listdir() == ["a.bin"]


def test_a_missing_file_is_an_error_with_advice(folder: Location) -> None:
    with pytest.raises(StorageError, match="No such file") as raised:
        folder.join("none").read_bytes()

    assert raised.value.hint
    assert str(folder.join("none")) in raised.value.path


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    with pytest.raises(StorageError, match=r"Not a directory|File exists"):
        Location(str(tmp_path / "f" / "g")).write_atomic(b"x")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
        )
    except OSError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip("cannot mount a file system here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(tiny_disk: Path) -> None:
    file = Location(str(tiny_disk / "a.bin"))
    file.write_atomic(b"old")

    with pytest.raises(StorageError, match="No space left") as raised:
        file.write_atomic(os.urandom(1 << 18))

    assert "free some space" in raised.value.hint
    assert file.read_bytes() == b"old"
    assert os.listdir(tiny_disk) == ["a.bin"]


def test_secrets_are_never_shown() -> None:
    place = Location("foo://user:hunter22@host/a", {"key": "AKIASECRET", "client_kwargs": {"token": "tok-secret"}})

    with pytest.raises(StorageError) as raised:
        place.open()

    shown = f"{place!r} {place} {raised.value!r} {raised.value}"
    assert not [secret for secret in ("hunter22", "AKIASECRET", "tok-secret") if secret in shown]
    assert pickle.loads(pickle.dumps(place)).options["key"] == "AKIASECRET"


def test_credentials_are_chosen_by_protocol() -> None:
    credentials = {"s3": {"key": "k"}, "gs": {"token": "t"}}

    assert Location.of("s3://bucket/cache", credentials).options == {"key": "k"}
    assert Location.of("/tmp/cache", credentials).options == {}


@pytest.mark.parametrize(
    ("text", "url"),
    [("s3://b/k", True), ("file:///a", True), ("C:\\data\\x", False), ("/a/b", False), ("a.csv", False)],
)
def test_what_is_a_url(text: str, url: bool) -> None:
    assert is_url(text) is url


def test_the_user_cache_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")

    assert user_cache().url == os.path.join("/somewhere", "core")


@pytest.mark.parametrize("url", ["{}/new.json", "memory://new/{}.json"])
def test_a_new_file_is_written_once(tmp_path, url):
    place = Location(url.format(tmp_path))

    assert [place.write_new(data) for data in (b"first", b"second")] == [True, False]
    assert place.read_bytes() == b"first"
    assert len(place.parent.listdir()) == 1
