"""The same predictions whoever makes them: this process, several of this machine, or the actors of a cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

import core
from core.errors import ConfigError, DataError, WorkerFailed

DAMAGED = 85


@pytest.fixture
def loaded(run: core.Run, engine: dict[str, Any]) -> core.Model:
    return core.Model.load(run.model_path, backend=engine)


def test_engines_agree(loaded, model, missing, files, tmp_path, monkeypatch):
    monkeypatch.setattr("core.data.sources._BLOCK_ROWS", (20, 20))  # of frames
    expected = model.predict(missing, index_column="id")

    metrics, predictions = loaded.evaluate(missing)
    folder = loaded.predict(files, index_column="id", output=f"{tmp_path}/out/")

    assert expected["id"].tolist() == missing["id"].tolist()
    assert expected["much_predictions"].isna().to_numpy().nonzero()[0].tolist() == [4, 5, 50]
    assert metrics == model.evaluate(missing)[0]
    assert_frame_equal(predictions, expected.drop(columns="id"), check_exact=True)
    names = sorted(os.listdir(folder))
    assert names == ["_manifest.json", *(f"part-{number:05d}.parquet" for number in range(10))]
    tables = [pq.read_table(folder / name) for name in names[1:]]
    assert [table.column("id").to_pylist() for table in tables] == [
        missing["id"][number * 9 : number * 9 + 9].tolist() for number in range(10)
    ]
    found = pd.concat([table.to_pandas() for table in tables], ignore_index=True)
    assert_frame_equal(found, expected, rtol=1e-5, check_dtype=False)


def test_a_value_that_cannot_be_read_names_its_row(loaded, files, frame, tmp_path):
    for path in files.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = frame[81:].assign(x=frame["x"].astype(object))
    damaged.loc[DAMAGED, "x"] = "never a number"
    damaged.to_csv(tmp_path / "9.csv", index=False)

    with pytest.raises(DataError, match=f"row {DAMAGED + 1}.*\n?.*never a number"):
        loaded.predict(tmp_path)


class Once(core.Callback):
    """Does something when the first rows have been predicted."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def on_prediction_progress(self, **details: Any) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


@pytest.mark.parametrize("engine", ["processes", "ray"], indirect=True)
def test_what_a_lost_worker_had_is_done_again(loaded, model, missing, workers, monkeypatch):
    monkeypatch.setattr("core.data.sources._BLOCK_ROWS", (1, 1))
    killed = []

    def kill() -> None:
        killed.append(workers()[0])
        os.kill(killed[0], signal.SIGKILL)

    loaded.callbacks = (Once(kill),)
    found = loaded.predict(missing, batch_size=1)

    assert killed
    assert_frame_equal(found, model.predict(missing, batch_size=1), check_exact=True)


@pytest.mark.parametrize("engine", ["processes"], indirect=True)
def test_workers_that_die_again_and_again(loaded, files, workers):
    done = threading.Event()

    def kill() -> None:
        while not done.is_set():
            for pid in workers():
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with pytest.raises(WorkerFailed, match=r"3 processes were lost .* killed by SIGKILL"):
            loaded.predict(files)
    finally:
        done.set()
        thread.join()


def test_what_a_cluster_can_never_place_is_refused(run, files, ray_cluster):
    trainer = {"num_workers": 2, "resources_per_worker": {"no_such_thing": 1}}

    with pytest.raises(ConfigError, match=r"resources_per_worker\.no_such_thing"):
        core.Model.load(run.model_path, backend={"type": "ray", "trainer": trainer}).predict(files)


def test_a_file_that_only_the_driver_sees(run, files: Path):
    pytest.importorskip("ray")
    from core.backends.ray.predict import _other_disk_told
    from core.errors import StorageError

    there, nowhere = (StorageError("cannot read it: No such file", path=str(files / n)) for n in ("0.csv", "none.csv"))

    assert "all nodes reach" in _other_disk_told(there).hint
    assert _other_disk_told(nowhere) is nowhere
