"""Predictions that are written: what a stopped job has done is kept and found again, and nothing else is."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import core
from core.cli import main
from core.errors import UserError
from core.prediction.claim import claimed
from core.storage import Location

FILES, ROWS_OF_A_FILE = 24, 150
SEVERAL = "{type: local, trainer: {num_workers: 2}}"


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough rows, one at a time, to be stopped among them."""
    folder = tmp_path_factory.mktemp("much")
    random = np.random.default_rng(0)
    for number in range(FILES):
        rows = frame.iloc[random.integers(0, len(frame), ROWS_OF_A_FILE)].assign(number=number)
        rows.to_csv(folder / f"{number:02d}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def expected(model: core.Model, data: Path) -> pd.DataFrame:
    return model.predict(data, index_column="number", batch_size=1).reset_index(drop=True)


@pytest.fixture
def command(run: core.Run, data: Path) -> Callable[..., list[str]]:
    def words(output: object, *more: str, name: str = "predict") -> list[str]:
        words = [name, "-m", str(run.model_path), "--dataset", str(data), "-bs", "1", "--index-column", "number"]
        return [*words, "--output", str(output), *more]

    return words


def stop(words: list[str], how: signal.Signals, parts: Callable[[], dict[str, Any]]) -> tuple[int, str, dict[str, Any]]:
    """Start a job and stop it once it has finished some parts: its exit status, stderr, and the parts."""
    command = [sys.executable, "-m", "core", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(parts()) < 3 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(how)
        _, err = process.communicate(timeout=30)
    return process.returncode, err, parts()


def finished(folder: Path) -> Callable[[], dict[str, Any]]:
    """The parts below a folder that have been recorded: name to what tells the file from one written later."""

    def found() -> dict[str, Any]:
        recorded = {path.stem for path in folder.rglob("part-*.json") if path.stat().st_size}  # not one just begun
        files = [path for path in folder.rglob("part-*") if path.suffix in (".parquet", ".arrow")]
        return {path.name: _mark(path) for path in files if path.stem in recorded}

    return found


def _mark(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[..., tuple[int, str]]:
    """The exit status of a command line run here, and what it logs and prints."""

    def run(words: list[str]) -> tuple[int, str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="core"), contextlib.redirect_stderr(io.StringIO()) as err:
            status = main(words)
        return status, caplog.text + err.getvalue()

    return run


def read(output: Path) -> pd.DataFrame:
    if output.is_dir():
        return pd.concat([pd.read_parquet(path) for path in sorted(output.glob("part-*"))], ignore_index=True)
    return pd.read_csv(output, dtype={"number": str}) if output.suffix == ".csv" else pd.read_parquet(output)


@pytest.mark.parametrize(("output", "backend"), [("out/", "local"), ("p.csv", "local"), ("p.parquet", SEVERAL)])
def test_a_killed_job_goes_on(output, backend, command, expected, said, tmp_path):
    words = command(f"{tmp_path}/{output}", "--backend", backend)
    place, folder = tmp_path / output, output.endswith("/")
    status, err, done = stop(words, signal.SIGKILL, finished(tmp_path))
    assert status == -signal.SIGKILL, err
    assert place.exists() == folder

    status, text, parts = _watched(said, words, tmp_path)

    assert status == 0, text
    assert f"continuing: {len(done)} of {FILES} parts were done" in text
    assert {name: parts[name] for name in done} == done
    assert len(parts) == FILES
    assert_frame_equal(read(place), expected, check_exact=place.suffix != ".csv", check_dtype=place.suffix != ".csv")
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    assert not (place / "_job").exists()


def _watched(said: Any, words: list[str], folder: Path) -> tuple[int, str, dict[str, Any]]:
    """Run a command, and look at its parts before they go."""
    from core.prediction import job

    behind, parts = job.behind, {}

    @contextlib.contextmanager
    def looked_at(*args: Any) -> Iterator[Any]:
        with behind(*args) as take:
            yield take
        parts.update(finished(folder)())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "behind", looked_at)
        return *said(words), parts


def test_an_interrupted_evaluation_goes_on(command, model, data, expected, said, tmp_path):
    words = command(tmp_path / "p.parquet", "--json", name="evaluate")
    status, err, done = stop(words, signal.SIGINT, finished(tmp_path))

    assert status == 130
    assert re.search(rf"stopped after \d+ of {FILES} parts", err)
    assert "Traceback" not in err

    with contextlib.redirect_stdout(io.StringIO()) as out:
        status, text = said(words)

    assert status == 0, text
    assert f"continuing: {len(done)} of {FILES} parts were done" in text
    assert json.loads(out.getvalue())["metrics"] == model.evaluate(data, batch_size=1)[0]
    assert_frame_equal(read(tmp_path / "p.parquet"), expected, check_exact=True)


def test_what_another_job_left_is_not_taken(command, expected, said, tmp_path):
    folder, file = tmp_path / "out", tmp_path / "p.parquet"
    for output in (folder, file):
        stop(command(output), signal.SIGKILL, finished(folder if output == folder else tmp_path / ".p.parquet.parts"))

    status, text = said(command(folder, "--split", "full", "-bs", "2"))
    assert status == 2
    assert "predictions of another job" in text
    assert "Name another --output" in text
    status, text = said(command(file, "-bs", "2"))
    assert status == 0
    assert "unfinished parts of another job were there; starting over" in text
    assert "continuing" not in text
    assert_frame_equal(read(file), expected, rtol=1e-5, check_exact=False)
    status, text = said(command(folder))
    assert status == 0
    assert "continuing" in text
    status, text = said(command(folder))
    assert "is complete already" in text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    status, text = said(command(tmp_path / "mine"))
    assert (status, "letter.txt" in text) == (2, True)


def test_one_job_at_a_time(command, said, tmp_path):
    base = Location(str(tmp_path / ".p.parquet.parts"))
    base.makedirs()
    with claimed(base, "it") as still_ours:
        status, text = said(command(tmp_path / "p.parquet"))
        assert status == 2
        assert f"process {os.getpid()}" in text
        still_ours()

    assert said(command(tmp_path / "p.parquet"))[0] == 0


@pytest.mark.parametrize("lives", [True, False])
def test_a_claim_of_another_machine_is_watched(lives, tmp_path, monkeypatch):
    monkeypatch.setattr("core.prediction.claim.PATIENCE_SECONDS", 1.5)
    monkeypatch.setattr("core.prediction.claim.BEAT_SECONDS", 0.3)
    folder = Location(str(tmp_path))
    with contextlib.ExitStack() as stack:
        if lives:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("core.prediction.claim._machine", lambda: "another")
                still_theirs = stack.enter_context(claimed(folder, "it"))
        else:
            (tmp_path / "claim-0").write_text('{"machine": "another", "host": "there", "pid": 1}')
        with pytest.raises(UserError, match="another process is writing") if lives else contextlib.nullcontext():
            stack.enter_context(claimed(folder, "it"))
        if lives:
            still_theirs()
            (tmp_path / "claim-1").write_text("{}")
            with pytest.raises(UserError, match="taken over"):
                still_theirs()
        else:
            assert os.listdir(tmp_path) == ["claim-1"]


def test_a_folder_in_an_object_store(stores, command, expected, said, monkeypatch):
    for name, value in stores[0].ambient().items():
        monkeypatch.setenv(name, value)
    files = stores[0].files()
    folder = "bucket/predictions"
    words = command(f"s3://{folder}", "--backend", SEVERAL)

    def records() -> dict[str, Any]:
        return {path: None for path in files.find(folder) if path.endswith(".json") and "part-" in path}

    def written() -> dict[str, Any]:
        return {path: info["LastModified"] for path, info in files.find(folder, detail=True).items()}

    stop(words, signal.SIGKILL, records)
    time.sleep(0.5)  # a worker that is left may still be writing
    before = written()
    done = [path.rpartition("/")[2].replace(".json", "") for path in records()]

    monkeypatch.setattr("core.prediction.claim.PATIENCE_SECONDS", 1)
    status, text = said(words)

    assert status == 0, text
    assert f"continuing: {len(done)} of {FILES} parts were done" in text
    after = written()
    assert all(after[f"{folder}/{part}.parquet"] == before[f"{folder}/{part}.parquet"] for part in done)
    names = sorted(path.rpartition("/")[2] for path in after)
    assert names == ["_manifest.json", *(f"part-{number:05d}.parquet" for number in range(FILES))]
    found = [pd.read_parquet(io.BytesIO(files.cat_file(f"{folder}/{name}"))) for name in names[1:]]
    assert_frame_equal(pd.concat(found, ignore_index=True), expected, check_exact=True)
