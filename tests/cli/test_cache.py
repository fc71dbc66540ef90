"""`core cache`: what is kept, and what goes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core.cli import main
from core.cli.console import byte_count
from core.data.cache import FOLDER, Writer
from core.storage import Location

CONFIG: dict[str, Any] = {
    "input_features": [{"name": "x", "type": "number"}, {"name": "c", "type": "category"}],
    "output_features": [{"name": "y", "type": "binary"}],
}
DEAD = "0badhost-1-abc"
HOUR, DAY = 3600, 86400

Cache = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "kept") if request.param == "local" else f"memory://{tmp_path.name}"


def fill(place: str | None, rows: int = 40, age: int = 0) -> Location:
    """An entry, written `age` seconds ago."""
    data = {"x": list(range(rows)), "c": ["a", "b"] * (rows // 2), "y": [0, 1] * (rows // 2)}
    entry = core.preprocess(CONFIG | {"backend": {"cache_dir": place}}, data).location
    if age:
        manifest = json.loads((entry / "manifest.json").read_bytes())
        before = manifest["generation"]
        manifest["generation"] = re.sub(r"^\d+", str(int(time.time()) - age), before)
        for name in (entry / before).listdir():
            (entry / manifest["generation"] / name).parent.makedirs()
            (entry / manifest["generation"] / name).write_bytes((entry / before / name).read_bytes())
        (entry / "manifest.json").write_atomic(json.dumps(manifest).encode())
        (entry / before).remove()
    return entry


@pytest.fixture
def cache(capsys: pytest.CaptureFixture[str]) -> Cache:
    """`core cache WORDS… --json`, and what it printed."""

    def run(*words: str) -> Any:
        assert main(["cache", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def removed(told: Any) -> set[tuple[str, str]]:
    return {(item["key"], item["reason"].partition(":")[0]) for item in told["removed"]}


def test_what_is_kept_is_listed_and_shown(place: str, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = fill(place, 40, age=3 * DAY), fill(place, 60)

    first, second = cache("list", "--cache-dir", place)["entries"]

    assert (first["key"], second["key"]) == (old.name, new.name)
    assert first["url"] == str(old)
    assert first["state"] == "complete"
    assert sum(first["rows"].values()) == 40
    assert first["features"] == {"x": "number", "c": "category", "y": "binary"}
    assert first["bytes"] == sum(old.sizes().values())
    assert 3 * DAY <= first["age_seconds"] < 3 * DAY + HOUR
    assert cache("show", old.name[:12], "--cache-dir", place)["key"] == old.name
    assert main(["cache", "list", "--cache-dir", place]) == main(["cache", "show", old.name, "--cache-dir", place]) == 0
    printed = capsys.readouterr().out
    assert "2 entries" in printed
    assert "x (number), c (category), y (binary)" in printed


def test_the_default_places_are_those_that_core_chooses(here: Path, cache: Cache) -> None:
    (here / "data").mkdir()
    (here / "data" / "d.csv").write_text("x,c,y\n" + "1,a,0\n2,b,1\n" * 20)
    beside = core.preprocess(CONFIG, str(here / "data" / "d.csv")).location
    in_user_cache = fill(None)

    assert [entry["key"] for entry in cache("list")["entries"]] == [in_user_cache.name]
    of_dataset = cache("list", "--dataset", "data/d.csv")["entries"]
    assert {entry["url"] for entry in of_dataset} == {str(beside), str(in_user_cache)}
    os.chdir(here / "data")
    assert {entry["key"] for entry in cache("list")["entries"]} == {beside.name, in_user_cache.name}


def test_old_entries_go(place: str, cache: Cache) -> None:
    old, new = fill(place, 40, age=3 * DAY), fill(place, 60, age=HOUR)
    planned = cache("prune", "--older-than", "2d", "--dry-run", "--cache-dir", place)
    assert removed(planned) == {(old.name, "older")}
    assert old.exists()

    told = cache("prune", "--older-than", "2d", "--cache-dir", place)

    assert told["removed"] == planned["removed"]
    assert told["kept_bytes"] == sum(new.sizes().values())
    assert [entry["key"] for entry in cache("list", "--cache-dir", place)["entries"]] == [new.name]
    assert new.parent.listdir() == [new.name] or new.local_path is None


def test_the_oldest_go_until_the_rest_is_small_enough(place: str, cache: Cache) -> None:
    entries = [fill(place, rows, age=age * HOUR) for rows, age in ((40, 2), (60, 9), (80, 5))]
    sizes = [sum(entry.sizes().values()) for entry in entries]

    told = cache("prune", "--max-size", f"{sizes[0] + sizes[2]}B", "--cache-dir", place)

    assert removed(told) == {(entries[1].name, "the oldest, above the size")}
    assert told["freed_bytes"] == sizes[1]
    assert len(cache("prune", "--max-size", "0B", "--cache-dir", place)["removed"]) == 2


def _lose_a_part(entry: Location) -> None:
    part = next(name for name in entry.sizes() if name.endswith(".parquet"))
    (entry / part).remove()


def _cut_the_manifest(entry: Location) -> None:
    (entry / "manifest.json").write_bytes((entry / "manifest.json").read_bytes()[:-9])


def _lose_the_manifest(entry: Location) -> None:
    (entry / "manifest.json").remove()


@pytest.mark.parametrize("damage", [_lose_a_part, _cut_the_manifest, _lose_the_manifest])
def test_damaged_entries_always_go(place: str, cache: Cache, damage: Callable[[Location], None]) -> None:
    good, bad = fill(place, 40), fill(place, 60, age=DAY)
    damage(bad)

    states = {entry["key"]: entry["state"] for entry in cache("list", "--cache-dir", place)["entries"]}
    told = cache("prune", "--cache-dir", place)

    assert states == {good.name: "complete", bad.name: "damaged"}
    assert removed(told) == {(bad.name, "damaged")}
    assert not bad.sizes()
    assert [entry["state"] for entry in cache("list", "--cache-dir", place)["entries"]] == ["complete"]


def test_a_flipped_bit_is_found_by_show(here: Path, cache: Cache) -> None:
    entry = fill(str(here / "kept"))
    part = next(Path(entry).rglob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)

    assert cache("list", "--cache-dir", "kept")["entries"][0]["state"] == "complete"
    assert cache("show", entry.name, "--cache-dir", "kept")["state"] == "damaged"


def test_what_dead_writers_left_goes_and_what_is_being_written_stays(place: str, cache: Cache) -> None:
    kept, busy = fill(place, 40, age=DAY), fill(place, 60, age=DAY)
    now = int(time.time())
    (kept / f"{now - DAY}-{DEAD}" / "a.parquet").write_atomic(b"left")
    writers = [Writer.begin(busy.parent, busy.name), Writer.begin(busy.parent, "0" * 32)]
    for writer in writers:
        (writer.entry / writer.generation / "a.parquet").write_atomic(b"part")
    (busy.parent / "not-a-key" / "precious").write_atomic(b"somebody's")

    told = cache("prune", "--older-than", "1h", "--max-size", "0B", "--cache-dir", place)

    assert {item["key"] for item in told["removed"]} == {kept.name}
    assert (busy / "manifest.json").exists()
    assert all((writer.entry / writer.generation / "a.parquet").exists() for writer in writers)
    assert (busy.parent / "not-a-key" / "precious").exists()
    states = {entry["key"]: entry["state"] for entry in cache("list", "--cache-dir", place)["entries"]}
    assert states == {busy.name: "complete", "0" * 32: "being written"}


def test_only_the_dead_generation_of_a_good_entry_goes(place: str, cache: Cache) -> None:
    entry = fill(place)
    left = f"{int(time.time()) - DAY}-{DEAD}"
    (entry / left / "a.parquet").write_atomic(b"left")

    told = cache("prune", "--cache-dir", place)

    assert [(item["generation"], item["bytes"]) for item in told["removed"]] == [(left, 4)]
    assert cache("show", entry.name, "--cache-dir", place)["state"] == "complete"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prune", "--older-than", "30"], "as in 30d, not '30'"),
        (["prune", "--older-than", "d"], "as in 30d"),
        (["prune", "--older-than=-1d"], "as in 30d"),
        (["prune", "--older-than", "1y"], "one of s, m, h, d, w"),
        (["prune", "--max-size", "10"], "as in 10GB, not '10'"),
        (["prune", "--max-size", "10gb"], "as in 10GB"),
        (["list", "--older-than", "30d"], "--older-than belongs to `core cache prune`"),
        (["show", "--dry-run", "0"], "--dry-run belongs to `core cache prune`"),
        (["show"], "needs the KEY"),
        (["list", "0"], "takes no KEY"),
        (["show", "0"], "there is no such entry"),
        (["list", "--cache-dir", "a", "--dataset", "b"], "exclude each other"),
        (["list", "--cache-credentials", "none.json"], "none.json"),
        (["forget"], "invalid choice"),
    ],
)
def test_a_wrong_command_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", *words]) == 2
    assert said in capsys.readouterr().err


def test_nothing_kept_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list", "--cache-dir", "empty"]) == 0
    assert f"nothing is kept in {here / 'empty' / FOLDER}" in capsys.readouterr().out
    assert main(["cache", "prune", "--cache-dir", "empty"]) == 0
    assert "0 bytes freed, 0 bytes kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (123_456_789, "123 MB"),
        (999_600_000, "1 GB"),
        (2.5e12, "2.5 TB"),
        (None, "an unknown size"),
    ],
)
def test_a_count_of_bytes_has_three_digits(size, text):
    assert byte_count(size) == text
