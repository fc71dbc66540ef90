"""A dataset that pandas cannot hold is refused with a way out, which then works; under limits that are real."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from core.data import open_source
from core.data.formats.file import File
from core.data.memory import MEGABYTE, Room, room
from core.errors import DataError
from core.processors import pandas as engine
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions
from core.storage import Location

CGROUPS = Path("/sys/fs/cgroup")
LIMIT = 370 * MEGABYTE

RUN = """
    import os, resource, sys

    import pandas, pyarrow.csv, pyarrow.parquet, torch
    import core

    path, processor, cache, most, cgroup = sys.argv[1:]
    if cgroup:
        with open(cgroup + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    else:
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + int(most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    config = {
        "input_features": [{"name": "a", "type": "category"}, {"name": "b", "type": "category"}],
        "output_features": [{"name": "y", "type": "binary"}],
    }
    processor = {"type": processor, **({"parallelism": 60} if processor == "dask" else {})}
    backend = {"type": "local", "processor": processor, "cache_dir": cache}
    try:
        core.preprocess(config, path, backend=backend)
    except core.errors.DataError as error:
        sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A CSV of 300 MB, in long values that are quickly read."""
    path = tmp_path_factory.mktemp("large") / "large.csv"
    rows = (f"{i % 7}{'abcdefghij' * 20},{i % 5}{'klmnopqrst' * 20},{i % 2}\n" for i in range(70))
    chunk = "".join(rows).encode() * 300
    with path.open("wb") as file:
        file.write(b"a,b,y\n")
        while file.tell() < 300 * MEGABYTE:
            file.write(chunk)
    yield path
    path.unlink()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup with the limit, of either version."""
    first = CGROUPS / "memory" / "memory.limit_in_bytes"
    folder = (first.parent if first.exists() else CGROUPS) / f"core-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if first.exists() else "memory.max")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        if not limit.exists():
            pytest.skip("the memory of cgroups is not controlled here")
        limit.write_text(str(LIMIT))
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def preprocess(path: Path, processor: str, cache: Path, cgroup: str) -> subprocess.CompletedProcess[str]:
    # Pools that reserve address space for later would make its limit depend on how many threads there are.
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(RUN), str(path), processor, str(cache), str(LIMIT), cgroup]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["address space", "cgroup"])
def test_what_pandas_refuses_dask_does_under_the_same_limit(
    large: Path, limit: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("dask")
    pytest.importorskip("resource")
    cgroup = str(request.getfixturevalue("cgroup")) if limit == "cgroup" else ""

    refused = preprocess(large, "pandas", tmp_path, cgroup)
    done = preprocess(large, "dask", tmp_path, cgroup)

    assert refused.returncode == 1
    said = refused.stderr.strip().splitlines()[-2:]
    assert said[0].startswith(f"{large}: the dataset does not fit into memory: ")
    assert f"left under the limit of its {limit}" in said[0]
    assert said[1] == "    the dask processor works on a part at a time: set backend.processor to dask"
    assert (done.returncode, done.stderr) == (0, "")


def test_what_fits_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.csv").write_text("a,b\n" + "1,x\n" * 1000)
    monkeypatch.setattr("core.data.sources._BLOCK_BYTES", (256, 256))
    source = open_source(str(tmp_path / "d.csv"))
    everything = source.blocks(None)
    needed = pa.concat_tables([read() for read in everything]).nbytes

    for spare, fits in ((1.3, True), (0.7, False)):
        with monkeypatch.context() as patch:
            patch.setattr(engine, "_BESIDE_BYTES", 0)
            patch.setattr(engine, "room", lambda spare=spare: Room(int(needed * spare), "of nothing else"))
            if fits:
                assert len(PandasProcessor(ProcessorOptions()).open(source)) == 1000
            else:
                with pytest.raises(
                    DataError, match=r"d\.csv: the dataset does not fit into memory: .* of nothing else"
                ):
                    PandasProcessor(ProcessorOptions()).open(source)


def test_files_that_are_read_as_a_whole_name_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.data.formats.file.room", lambda: Room(3, "left"))
    for name in ("d.csv.gz", "d.json"):
        (tmp_path / name).write_bytes(b"[{}]")

        with pytest.raises(DataError, match="does not fit into memory") as raised:
            open_source(str(tmp_path / name))

        assert "CSV that is not compressed" in raised.value.hint


def test_memory_that_the_system_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "d.arrow").write_bytes(b"ARROW1")
    file = File.at(Location(str(tmp_path / "d.arrow")))

    for error in (OSError(12, "Cannot allocate memory"), pa.ArrowMemoryError("malloc failed")):
        assert "does not fit into memory" in str(file.damaged(error, "Arrow"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_the_room_is_no_more_than_the_machine_has() -> None:
    found = room()

    assert found is not None
    assert 0 < found.bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4
