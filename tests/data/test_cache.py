"""The cache: what is a hit, what survives a crash, and where it lies."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.config.sections import Backend, Config, RandomSplit, Trainer
from core.data import CacheOptions, Datasets, Processed, preprocess
from core.data.cache import FOLDER
from core.errors import ConfigError, DataError, StorageError
from core.features import CategoryInput, NumberInput
from core.features.category import OneHot
from core.features.number import NumberPreprocessing
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions

Run = Callable[..., Processed]
MakeConfig = Callable[..., Config]


def tables(processed: Processed) -> dict[str, Any]:
    return {name: split.read(0, split.rows) for name, split in processed.splits.items()}


def parts_of(processed: Processed) -> list[Path]:
    return sorted(Path(processed.url).rglob("*.parquet"))


def generations(processed: Processed) -> list[str]:
    return sorted(path.name for path in Path(processed.url).iterdir() if path.is_dir())


def test_the_second_time_is_a_hit_with_the_same_content(run: Run, make_config: MakeConfig, rows: Any) -> None:
    made, found = run(make_config(), rows, partitions=2), run(make_config(), rows, partitions=5)

    assert (made.hit, found.hit) == (False, True)
    assert found.metadata == made.metadata
    assert tables(found) == tables(made)
    assert len(generations(found)) == 1


def test_another_process_opens_it(run: Run, make_config: MakeConfig, rows: Any) -> None:
    made = run(make_config(), rows)

    for other in (
        Processed.open(made.url),
        Processed.from_json(json.loads(json.dumps(made.to_json()))),
        pickle.loads(pickle.dumps(made)),
    ):
        assert tables(other) == tables(made)
        assert (other.key, other.fingerprint, other.metadata) == (made.key, made.fingerprint, made.metadata)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: attrs.evolve(c, trainer=Trainer(epochs=1, batch_size=7)),
        lambda c: attrs.evolve(c, backend=Backend(type="local", cache_dir="elsewhere")),
        lambda c: attrs.evolve(c, input_features=(c.input_features[0], CategoryInput(name="c", encoder=OneHot()))),
        lambda c: attrs.evolve(c, combiner=attrs.evolve(c.combiner, dropout=0.5)),
    ],
    ids=["trainer", "backend", "encoder", "combiner"],
)
def test_what_shapes_no_row_is_not_in_the_key(run: Run, make_config: MakeConfig, rows: Any, change: Any) -> None:
    run(make_config(), rows)

    assert run(change(make_config()), rows).hit


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"rows": {"x": [0.5] * 200}},
        {
            "inputs": (
                NumberInput(name="x", preprocessing=NumberPreprocessing(normalization=None)),
                CategoryInput(name="c"),
            )
        },
        {"inputs": (NumberInput(name="x"), CategoryInput(name="d", column="c"))},
        {"sample_size": 100},
        {"split": RandomSplit(probabilities=(0.5, 0.25, 0.25))},
    ],
    ids=["seed", "data", "preprocessing", "name", "sample", "split"],
)
def test_what_shapes_rows_is_in_the_key(run: Run, make_config: MakeConfig, rows: Any, change: dict[str, Any]) -> None:
    run(make_config(), rows)
    data = {**rows, **change.pop("rows", {})}
    seed = change.pop("seed", 1)

    assert not run(make_config(**change), data, seed=seed).hit


def test_a_file_that_changed_in_place_is_another_dataset(run: Run, make_config: MakeConfig, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("x,c,y\n" + "1,a,0\n2,b,1\n" * 20)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    run(make_config(), str(path))
    path.write_text("x,c,y\n" + "1,a,0\n3,b,1\n" * 20)
    os.utime(path, ns=times)

    found = run(make_config(), str(path))

    assert not found.hit
    assert found.metadata["x"]["max"] == 3


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: _flip(parts_of(p)[0]), "damaged part"),
        (lambda p: _cut(parts_of(p)[-1]), "damaged part"),
        (lambda p: parts_of(p)[0].unlink(), "No such file"),
        (lambda p: _cut(Path(p.url) / "manifest.json"), "damaged manifest"),
        (lambda p: (Path(p.url) / "manifest.json").write_text('{"format": 0}'), "format 0"),
        (lambda p: (Path(p.url) / "manifest.json").write_text(""), "damaged manifest"),
    ],
    ids=["bit", "cut part", "lost part", "cut manifest", "other version", "empty manifest"],
)
def test_a_damaged_entry_is_said_and_rebuilt(
    run: Run, make_config: MakeConfig, rows: Any, caplog: pytest.LogCaptureFixture, damage: Any, said: str
) -> None:
    made = run(make_config(), rows)
    expected = tables(made)
    damage(made)

    again = run(make_config(), rows)

    assert not again.hit
    assert tables(again) == expected
    assert [said in message and message.endswith("rebuilding") for message in caplog.messages] == [True]
    assert run(make_config(), rows).hit


def test_a_damaged_part_is_noticed_when_it_is_read(run: Run, make_config: MakeConfig, rows: Any) -> None:
    made = run(make_config(), rows)
    parts_of(made)[-1].write_bytes(b"")

    with pytest.raises(DataError, match="damaged or gone"):
        tables(Processed.open(made.url))


KILLED = """
    import os, signal, sys
    from core.data import cache, CacheOptions, Datasets, preprocess
    from core.config.sections import Config
    from core.features import BinaryOutput, NumberInput
    from core.processors.pandas import PandasProcessor
    from core.specs import ProcessorOptions

    write, count = cache.Writer.{method}, 0

    def killed(*args, **kwargs):
        global count
        count += 1
        if count == {nth}:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*args, **kwargs)

    cache.Writer.{method} = killed
    preprocess(
        Config(input_features=(NumberInput(name="x"),), output_features=(BinaryOutput(name="y"),)),
        Datasets(dataset={{"x": list(range(60)), "y": [0, 1] * 30}}),
        seed=1,
        processor=PandasProcessor(ProcessorOptions(parallelism=3)),
        cache=CacheOptions(directory={folder!r}),
    )
"""


@pytest.mark.parametrize(("method", "nth"), [("part", 5), ("finish", 1)])
def test_a_killed_writer_leaves_no_entry_and_its_rest_is_cleared(
    run: Run, make_config: MakeConfig, tmp_path: Path, method: str, nth: int
) -> None:
    folder = tmp_path / "cache"
    program = textwrap.dedent(KILLED).format(method=method, nth=nth, folder=str(folder))

    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == -signal.SIGKILL
    (entry,) = (folder / FOLDER).iterdir()
    assert not (entry / "manifest.json").exists()
    assert len(list(entry.iterdir())) == 1
    made = run(make_config((NumberInput(name="x"),)), {"x": list(range(60)), "y": [0, 1] * 30}, partitions=2)
    assert (made.hit, Path(made.url)) == (False, entry)
    assert len(generations(made)) == 1


def test_what_a_dead_writer_of_another_host_left_is_cleared_when_old(
    run: Run, make_config: MakeConfig, rows: Any, tmp_path: Path
) -> None:
    entry = tmp_path / "cache" / FOLDER / "another-key"
    now = int(time.time())
    old, young = (entry / f"{begun}-0badhost-1-abc" for begun in (now - 10**5, now))
    for folder in (old, young):
        folder.mkdir(parents=True)

    run(make_config(), rows)

    assert (old.exists(), young.exists()) == (False, True)


CONCURRENT = """
    import sys
    from core.data import CacheOptions, Datasets, preprocess
    from core.config.sections import Config
    from core.features import BinaryOutput, NumberInput
    from core.processors.pandas import PandasProcessor
    from core.specs import ProcessorOptions

    print("ready", flush=True)
    sys.stdin.readline()
    found = preprocess(
        Config(input_features=(NumberInput(name="x"),), output_features=(BinaryOutput(name="y"),)),
        Datasets(dataset={{"x": list(range(60)), "y": [0, 1] * 30}}),
        seed=1,
        processor=PandasProcessor(ProcessorOptions(parallelism=7)),
        cache=CacheOptions(directory={folder!r}),
    )
    print(found.key, [split.read(0, split.rows).to_pydict() for split in found.splits.values()])
"""


def test_two_writers_at_once_both_end_with_a_valid_entry(run: Run, make_config: MakeConfig, tmp_path: Path) -> None:
    program = textwrap.dedent(CONCURRENT).format(folder=str(tmp_path / "cache"))
    writers = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"

    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    told = [writer.communicate(timeout=60)[0] for writer in writers]

    assert told[0] == told[1] != ""
    found = run(make_config((NumberInput(name="x"),)), {"x": list(range(60)), "y": [0, 1] * 30})
    assert found.hit
    assert told[0].startswith(found.key)


def test_the_default_place_is_beside_the_dataset(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,c,y\n" + "1,a,0\n2,b,1\n" * 20)

    found = _default(make_config(), str(tmp_path / "d.csv"))

    assert Path(found.url).parent == tmp_path / FOLDER
    # The cache is no data: the folder can still be the dataset.
    assert _default(make_config(), str(tmp_path)).hit


def test_data_in_memory_is_kept_in_the_users_cache(
    make_config: MakeConfig, rows: Any, user_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    found = _default(make_config(), rows)

    assert Path(found.url).parent == user_cache / "core" / FOLDER
    assert sorted(path.name for path in tmp_path.iterdir()) == ["user-cache"]


def test_beside_an_unwritable_dataset_it_falls_back_with_a_notice(
    make_config: MakeConfig, tmp_path: Path, user_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "d.csv").write_text("x,c,y\n" + "1,a,0\n2,b,1\n" * 20)
    (tmp_path / FOLDER).write_text("a file where the folder would be")

    found = _default(make_config(), str(tmp_path / "d.csv"))

    assert Path(found.url).parent == user_cache / "core" / FOLDER
    assert len([message for message in caplog.messages if "cannot write beside the dataset" in message]) == 1
    assert _default(make_config(), str(tmp_path / "d.csv")).hit


def test_a_place_that_was_asked_for_must_be_writable(make_config: MakeConfig, rows: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StorageError, match=r"backend\.cache_dir") as raised:
        preprocess(
            make_config(),
            Datasets(dataset=rows),
            seed=1,
            processor=PandasProcessor(ProcessorOptions()),
            cache=CacheOptions(directory=str(tmp_path / "file")),
        )

    assert str(tmp_path / "file") in raised.value.path


def test_a_remote_cache(make_config: MakeConfig, rows: Any) -> None:
    made, found = (
        _default(attrs.evolve(make_config(), backend=Backend(cache_dir="memory://cache-test")), rows) for _ in range(2)
    )

    assert made.url.startswith("memory://cache-test/")
    assert (made.hit, found.hit) == (False, True)
    assert tables(found) == tables(made)
    assert tables(Processed.open(made.url)) == tables(made)


def test_credentials_come_from_the_config_or_a_file_and_are_not_shown(tmp_path: Path) -> None:
    secrets = {"s3": {"key": "AKIASECRET"}}
    (tmp_path / "secrets.json").write_text(json.dumps(secrets))

    inline = CacheOptions.of(Backend(cache_credentials=secrets))
    from_file = CacheOptions.of(Backend(cache_credentials=str(tmp_path / "secrets.json")))

    assert inline.credentials == from_file.credentials == secrets
    assert "AKIASECRET" not in f"{inline!r} {from_file}"


@pytest.mark.parametrize("content", ["AKIASECRET", '["AKIASECRET"]', '{"key": "AKIASECRET"}'])
def test_a_damaged_credentials_file_shows_no_secret(tmp_path: Path, content: str) -> None:
    (tmp_path / "secrets.json").write_text(content)

    with pytest.raises(ConfigError, match="not a JSON file of credentials") as raised:
        CacheOptions.of(Backend(cache_credentials=str(tmp_path / "secrets.json")))

    assert "AKIASECRET" not in str(raised.value)


def test_a_failed_run_leaves_nothing(
    run: Run, make_config: MakeConfig, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr("core.data.cache.Writer.finish", full)

    with pytest.raises(StorageError, match="no space left"):
        run(make_config(), rows)

    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_disk_that_fills_up(make_config: MakeConfig, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system here")
    data = {"x": [i * 0.1 for i in range(60000)], "c": ["a"] * 60000, "y": [0, 1] * 30000}
    config = attrs.evolve(make_config(), backend=Backend(cache_dir=str(disk)))

    try:
        with pytest.raises(StorageError, match="No space left") as raised:
            _default(config, data)
        left = [path for path in disk.rglob("*") if path.is_file()]
    finally:
        subprocess.run(["umount", str(disk)], check=True)

    assert "free some space" in raised.value.hint
    assert left == []


def _default(config: Config, dataset: Any) -> Processed:
    return preprocess(config, Datasets(dataset=dataset), seed=1, processor=PandasProcessor(ProcessorOptions()))


def test_touching_a_file_changes_nothing(run: Run, make_config: MakeConfig, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("x,c,y\n" + "1,a,0\n2,b,1\n" * 20)
    run(make_config(), str(path))
    os.utime(path, (1, 1))

    assert run(make_config(), str(path)).hit


@pytest.mark.slow
def test_a_second_run_says_so_on_one_line_and_starts_at_once(
    rows: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import core
    from core.cli.console import Console

    class Starts(core.Callback):
        def on_train_start(self, **details: Any) -> None:
            self.at = time.process_time()

    config = {
        "input_features": [{"name": "x", "type": "number"}, {"name": "c", "type": "category"}],
        "output_features": [{"name": "y", "type": "binary"}],
        "trainer": {"epochs": 1},
        "backend": {"type": "local", "cache_dir": str(tmp_path / "cache")},
    }
    core.Model(config).train(rows, output_directory=tmp_path)  # everything is imported now
    starts = Starts()
    begun = time.process_time()  # of all threads: what others do on this machine does not count

    core.Model(config, callbacks=[Console(), starts]).train(rows, output_directory=tmp_path)

    said = [line for line in capsys.readouterr().err.splitlines() if "cached data" in line]
    assert len(said) == 1
    assert f"{rows_in(tmp_path / 'cache')}" in said[0]
    assert starts.at - begun < 2


def rows_in(cache: Path) -> Path:
    """The only entry."""
    (entry,) = (cache / FOLDER).iterdir()
    return entry


@pytest.mark.parametrize(
    ("directory", "protocols", "ignored"),
    [
        ("memory://noted", ["memory"], []),
        ("memory://noted", ["gs", "memory", "s3"], ["gs", "s3"]),
        (None, ["s3"], ["s3"]),
    ],
)
def test_credentials_of_another_protocol_are_said_not_to_apply(
    make_config: MakeConfig,
    rows: Any,
    caplog: pytest.LogCaptureFixture,
    directory: str | None,
    protocols: list[str],
    ignored: list[str],
) -> None:
    credentials = {protocol: {"key": "AKIASECRET"} if protocol != "memory" else {} for protocol in protocols}
    backend = Backend(cache_dir=directory, cache_credentials=credentials)

    with caplog.at_level(logging.INFO, "core"):
        _default(attrs.evolve(make_config(), backend=backend), rows)

    said = [message for message in caplog.messages if "does not apply" in message]
    assert [message.split(" ")[0] for message in said] == [f"backend.cache_credentials.{name}" for name in ignored]
    assert "AKIASECRET" not in caplog.text
