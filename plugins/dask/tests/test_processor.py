"""What is Dask's own: where tasks run, what is kept between passes, and what happens when that fails."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from core.data import open_source
from core.errors import PluginError
from core_dask import DaskOptions

pytest.importorskip("dask")

from dask.system import CPU_COUNT

from core_dask.processor import DaskProcessor


def where(table: pa.Table, first_row: int) -> tuple[int, str]:
    return os.getpid(), threading.current_thread().name


def count(table: pa.Table, first_row: int) -> int:
    return table.num_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    path.write_text("a,b\n" + "1,x\n" * 1000)
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("parallelism", [1, 3, 17])
def test_parallelism_is_the_number_of_partitions(path: Path, parallelism: int) -> None:
    engine = DaskProcessor(DaskOptions(parallelism=parallelism, scheduler="threads"))

    assert len(engine.map(engine.open(open_source(path)), count)) == parallelism
    engine.close()


def test_processes_are_started_once_for_all_passes(path: Path) -> None:
    engine = DaskProcessor(DaskOptions(parallelism=4, scheduler="processes"))
    frame = engine.open(open_source(path))

    first, second = (engine.map(frame, where) for _ in range(2))
    engine.close()

    processes = {process for process, _ in first + second}
    assert os.getpid() not in processes
    assert len(processes) <= CPU_COUNT


def test_a_dataset_is_read_once_and_what_is_kept_is_removed(path: Path, temporary: Path) -> None:
    engine = DaskProcessor(DaskOptions(parallelism=3, scheduler="threads"))
    frame = engine.open(open_source(path))

    assert not list(temporary.glob("core-dask-*"))  # nothing happens before the first pass
    assert sum(engine.map(frame, count)) == 1000
    assert len(list(temporary.glob("core-dask-*/**/*.arrow"))) == 3
    path.unlink()
    assert sum(engine.map(frame, count)) == 1000

    engine.close()
    assert not list(temporary.glob("core-dask-*"))


def test_without_room_for_temporary_files_the_dataset_is_read_anew(
    path: Path, temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import resource
    import signal

    engine = DaskProcessor(DaskOptions(parallelism=3, scheduler="threads"))
    frame = engine.open(open_source(path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with caplog.at_level(logging.WARNING, "core"):
            assert sum(engine.map(frame, count)) == 1000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)

    assert "read anew for each pass" in caplog.text
    assert sum(engine.map(frame, count)) == 1000
    engine.close()


def test_a_scheduler_that_does_not_answer_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("core_dask.cluster._SECONDS", 1)
    engine = DaskProcessor(DaskOptions(address="tcp://127.0.0.1:1"))

    with pytest.raises(PluginError, match="no Dask scheduler answers") as raised:
        engine.map(engine.open(open_source(path)), count)

    assert raised.value.path == "backend.processor.address"


def test_a_cluster_works_on_the_partitions(path: Path, dask_cluster: str) -> None:
    engine = DaskProcessor(DaskOptions(parallelism=4, address=dask_cluster))

    processes = {process for process, _ in engine.map(engine.open(open_source(path)), where)}
    engine.close()

    assert os.getpid() not in processes
