"""Runs on real S3 servers: data, cache, results and logs apart, and what goes wrong between here and there."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pandas as pd
import pytest

import core
from core.cli import main
from core.data import CacheOptions, Datasets, Processed, preprocess
from core.errors import CoreError, StorageError
from core.processors.pandas import PandasProcessor
from core.specs import ProcessorOptions
from core.storage import Location

pytest.importorskip("s3fs")

BUCKET = "s3://bucket"
CONFIG: dict[str, Any] = {
    "input_features": [{"name": "a", "type": "number"}, {"name": "kind", "type": "category"}],
    "output_features": [{"name": "label", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
    "trainer": {"epochs": 2, "batch_size": 64},
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    a, kind = random.normal(size=300), random.choice(["x", "y"], 300)
    return pd.DataFrame({"a": a, "kind": kind, "label": a + (kind == "x") > 0.5})


@pytest.fixture(scope="module", autouse=True)
def datasets(stores: Any, frame: pd.DataFrame) -> None:
    """One file and a folder of three, with the empty object that consoles make for a folder."""
    files = stores[0].files()
    files.pipe_file("bucket/data/one.csv", frame.to_csv(index=False).encode())
    files.pipe_file("bucket/folder/", b"")
    for number in range(3):
        part = frame.iloc[number * 100 : number * 100 + 100].to_csv(index=False)
        files.pipe_file(f"bucket/folder/part-{number}.csv", part.encode())


_clients: list[Any] = []
"""Clients that are not used any more. Letting go of one makes noise while the tests go on."""


def forget_clients() -> None:
    """Clients read the environment when they are made, and fsspec keeps them."""
    import s3fs

    _clients.append(dict(s3fs.S3FileSystem._cache))
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def ambient(stores: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Be the owner of the first store, or who the arguments of `Store.ambient` say."""

    def become(*identity: str, **settings: str) -> None:
        forget_clients()
        for name, value in stores[0].ambient(*identity, **settings).items():
            monkeypatch.setenv(name, value)

    become()
    yield become
    forget_clients()


def process(dataset: Any, directory: str, credentials: Any = None, **config: Any) -> Processed:
    return preprocess(
        core.config.load(CONFIG | config),
        Datasets(dataset=dataset),
        seed=1,
        processor=PandasProcessor(ProcessorOptions(parallelism=3)),
        cache=CacheOptions(directory=directory, credentials=credentials or {}),
    )


# A run on two stores


@attrs.frozen
class Finished:
    """A run of two workers: data, results and logs in the first store, the cache in the second."""

    run: str
    said: str
    environments: dict[str, str]
    folder: Path


class Environments(core.Callback):
    """What the worker processes were started with."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def on_epoch_end(self, **details: Any) -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            command = Path(f"/proc/{child}/cmdline").read_text(errors="replace")
            if "core.backends.worker" in command:
                self.found[child] = command + Path(f"/proc/{child}/environ").read_text(errors="replace")


@pytest.fixture(scope="module")
def finished(stores: Any, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("run")
    (folder / "credentials.json").write_text(json.dumps({"s3": stores[1].options()}))
    backend = {
        "type": "local",
        "cache_dir": f"{BUCKET}/cache",
        "cache_credentials": str(folder / "credentials.json"),
        "trainer": {"strategy": "ddp", "num_workers": 2, "logdir": f"{BUCKET}/logs"},
    }
    said, environments = io.StringIO(), Environments()
    handler = logging.StreamHandler(said)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder), contextlib.redirect_stderr(said):
        for name, value in stores[0].ambient().items():
            patch.setenv(name, value)
        forget_clients()
        logging.getLogger().addHandler(handler)
        patch.setattr(logging.getLogger("core"), "level", logging.DEBUG)
        from core.cli.console import Console

        try:
            run = core.Model(
                CONFIG | {"backend": backend}, callbacks=[Console(), environments, core.callbacks.TensorBoard()]
            ).train(f"{BUCKET}/data/one.csv", output_directory=f"{BUCKET}/results")
        finally:
            logging.getLogger().removeHandler(handler)
    return Finished(str(run.output_directory), said.getvalue(), environments.found, folder)


def test_everything_is_where_it_was_asked_for(stores: Any, finished: Finished) -> None:
    names = {path.removeprefix("bucket/results/experiment_run/") for path in stores[0].contents("results")}
    logs = {path.removeprefix("bucket/logs/experiment_run/") for path in stores[0].contents("logs")}
    cached = stores[1].contents("cache")

    assert finished.run == f"{BUCKET}/results/experiment_run"
    assert names >= {
        "description.json",
        "training_statistics.json",
        "learning_curves.png",
        "model/model.safetensors",
        "model/metadata.json",
    }
    assert {name.split("/")[0] for name in names if "/" in name} == {"model", "checkpoints"}
    assert logs >= {"logs/worker-0.log", "logs/worker-1.log"}
    assert any(name.startswith("tensorboard/events") for name in logs)
    assert [path for path in cached if path.endswith("manifest.json")]
    assert not [path for path in stores[0].contents() if ".core_cache" in path]
    assert [path.name for path in finished.folder.iterdir()] == ["credentials.json"]


def test_no_secret_is_in_anything_that_was_written(stores: Any, finished: Finished) -> None:
    secrets = [word.encode() for store in stores for pair in store.keys.values() for word in pair]
    of_the_cache = [word for pair in stores[1].keys.values() for word in pair]
    written = {path: data for store in stores for path, data in store.contents().items()}
    written |= {"what it said": finished.said.encode()}

    assert len(written) > 15
    assert len(finished.environments) == 2
    assert [(path, secret) for path, data in written.items() for secret in secrets if secret in data] == []
    assert [word for text in finished.environments.values() for word in of_the_cache if word in text] == []


def test_the_model_is_loaded_and_predicts_from_there(
    ambient: Any, stores: Any, finished: Finished, frame: pd.DataFrame
) -> None:
    model = core.Model.load(f"{finished.run}/model")
    expected = model.predict(frame)

    status = main(
        ["predict", "-m", finished.run, "--dataset", f"{BUCKET}/folder", "-o", f"{BUCKET}/out/p.csv", "--quiet"]
    )

    assert status == 0
    written = pd.read_csv(io.BytesIO(stores[0].contents("out")["bucket/out/p.csv"]))
    assert len(written) == 300
    pd.testing.assert_series_equal(
        written["label_probability"], expected["label_probability"], check_dtype=False, rtol=1e-5
    )


def test_the_run_is_continued_from_there(ambient: Any, stores: Any, finished: Finished, tmp_path: Path) -> None:
    credentials = {"s3": stores[1].options()}
    config = CONFIG | {
        "trainer": CONFIG["trainer"] | {"epochs": 3},
        "backend": {"type": "local", "cache_dir": f"{BUCKET}/cache", "cache_credentials": credentials},
    }

    run = core.Model(config).train(model_resume_path=finished.run)

    losses = run.training_statistics["training"]["combined"]["loss"]
    assert len(losses) == 3
    described = json.loads((Location(finished.run) / "description.json").read_bytes())
    assert described["config"]["trainer"]["epochs"] == 2


# Credentials


def test_variables_are_replaced_in_a_mapping_and_in_a_file(
    ambient: Any, stores: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = stores[1].keys["owner"]
    monkeypatch.setenv("CACHE_KEY", key)
    monkeypatch.setenv("CACHE_SECRET", secret)
    options = stores[1].options() | {"key": "${CACHE_KEY}", "secret": "${CACHE_SECRET}"}
    (tmp_path / "credentials.json").write_text(json.dumps({"s3": options}))

    for given in ({"s3": options}, str(tmp_path / "credentials.json")):
        config = CONFIG | {"backend": {"cache_dir": f"{BUCKET}/variables", "cache_credentials": given}}
        made = core.preprocess(config, f"{BUCKET}/data/one.csv")
        assert made.url.startswith(f"{BUCKET}/variables/")

    assert made.hit
    assert stores[1].contents("variables")
    assert not stores[0].contents("variables")


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"s3": {"key": "${NO_SUCH_VARIABLE}", "secret": "hidden-secret"}}))

    with pytest.raises(core.errors.ConfigError, match="NO_SUCH_VARIABLE is not set") as raised:
        CacheOptions.of(core.config.load(CONFIG | {"backend": {"cache_credentials": str(tmp_path / "c.json")}}).backend)

    assert raised.value.path.endswith("c.json.s3.key")
    assert "hidden-secret" not in str(raised.value)


def test_beside_a_remote_dataset_the_cache_has_its_own_credentials(
    ambient: Any, stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ambient("reader")
    credentials = {"s3": stores[0].options("owner")}

    made = core.preprocess(CONFIG | {"backend": {"cache_credentials": credentials}}, f"{BUCKET}/data/one.csv")

    assert made.url.startswith(f"{BUCKET}/data/.core_cache/")


WRONG = {
    "secret": ({"secret": "not-the-right-secret"}, "signature"),
    "key": ({"key": "NOBODYSKEY"}, "key ID"),
}


@pytest.mark.parametrize(("wrong", "said"), WRONG.values(), ids=WRONG)
def test_wrong_credentials_are_said_and_not_shown(ambient: Any, stores: Any, wrong: dict[str, str], said: str) -> None:
    options = stores[1].options() | wrong

    with pytest.raises(StorageError, match=said) as raised:
        process(f"{BUCKET}/data/one.csv", f"{BUCKET}/wrong", {"s3": options})

    assert raised.value.path == f"backend.cache_dir: {BUCKET}/wrong"
    assert "credentials" in raised.value.hint
    assert not [word for word in (options["key"], options["secret"]) if word in str(raised.value)]


def test_an_identity_that_may_only_read(ambient: Any, stores: Any) -> None:
    made = process(f"{BUCKET}/data/one.csv", f"{BUCKET}/shared")
    ambient("reader")

    assert process(f"{BUCKET}/data/one.csv", f"{BUCKET}/shared").key == made.key  # a hit needs no more
    with pytest.raises(StorageError, match="Access Denied"):
        process(f"{BUCKET}/folder", f"{BUCKET}/shared", input_features=CONFIG["input_features"][:1])
    with pytest.raises(StorageError, match="Access Denied") as raised:
        core.Model(CONFIG).train(f"{BUCKET}/data/one.csv", output_directory=f"{BUCKET}/forbidden")

    assert "what they are allowed to do" in raised.value.hint


def test_a_bucket_that_is_not_there(ambient: Any, stores: Any) -> None:
    with pytest.raises(StorageError, match="No such file") as of_results:
        core.Model(CONFIG).train(f"{BUCKET}/data/one.csv", output_directory="s3://no-such-bucket/results")
    with pytest.raises(StorageError, match="No such file") as of_cache:
        process(f"{BUCKET}/data/one.csv", "s3://no-such-bucket/cache")
    with pytest.raises(CoreError, match="no such file or folder"):
        process("s3://no-such-bucket/one.csv", f"{BUCKET}/cache")

    assert "s3://no-such-bucket" in of_results.value.path
    assert of_cache.value.path == "backend.cache_dir: s3://no-such-bucket/cache"
    assert not stores[0].files().exists("no-such-bucket")


def test_without_s3fs_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["s3fs"] = None
from core.storage import Location
Location("s3://bucket/x").read_bytes()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "pip install 'core[s3]'" in done.stderr


# Datasets, places and listings


@pytest.mark.parametrize("dataset", ["folder", "folder/", "folder/*.csv", "folder/part-[012].csv", "data/one.csv"])
def test_files_folders_and_globs_are_the_same_data(ambient: Any, dataset: str) -> None:
    whole = process(f"{BUCKET}/data/one.csv", f"{BUCKET}/same")

    found = process(f"{BUCKET}/{dataset}", f"{BUCKET}/same")

    for name, split in whole.splits.items():
        assert found.splits[name].read(0, 1000) == split.read(0, 1000)


def test_what_others_write_and_remove_is_seen_at_once(ambient: Any, stores: Any) -> None:
    folder, others = Location(f"{BUCKET}/shared-folder"), stores[0].files()
    (folder / "mine").write_bytes(b"1")
    assert folder.listdir() == ["mine"]

    others.pipe_file("bucket/shared-folder/theirs", b"2")
    others.pipe_file("bucket/shared-folder/sub/theirs", b"2")
    others.rm_file("bucket/shared-folder/mine")

    assert (folder / "theirs").exists()
    assert (folder / "sub").is_dir()
    assert not (folder / "mine").exists()
    assert folder.listdir() == ["sub", "theirs"]


def test_a_marker_of_a_folder_is_nothing_in_it(ambient: Any) -> None:
    folder = Location(f"{BUCKET}/folder")

    assert folder.is_dir()
    assert folder.listdir() == ["part-0.csv", "part-1.csv", "part-2.csv"]
    assert set(folder.sizes()) == set(folder.listdir())


def test_a_cache_is_listed_and_pruned_with_its_credentials(
    ambient: Any, stores: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"s3": stores[1].options()}))
    made = process(f"{BUCKET}/data/one.csv", f"{BUCKET}/pruned", {"s3": stores[1].options()})
    where = ["--cache-dir", f"{BUCKET}/pruned", "--cache-credentials", str(tmp_path / "c.json")]

    assert main(["cache", "show", made.key, *where]) == 0
    shown = capsys.readouterr().out
    assert main(["cache", "prune", "--max-size", "0B", *where]) == 0

    assert "complete" in shown
    assert not stores[1].contents("pruned")
    assert not [secret for secret in stores[1].keys["owner"] if secret in shown + capsys.readouterr().out]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_other_processes_reach_what_this_one_has_reached(ambient: Any, stores: Any, method: str) -> None:
    place = Location(f"{BUCKET}/cache-of-a-worker", stores[1].options())
    place.write_bytes(b"content")

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as others:
        found = others.submit(Location.read_bytes, place).result(timeout=60)

    assert found == b"content"


@pytest.mark.usefixtures("ambient")
def test_runs_do_not_take_each_others_folder() -> None:
    from core.run import RunFolder

    names = []
    for _ in range(3):
        folder = RunFolder.create(f"{BUCKET}/taken", "experiment", "run")
        folder.description.write_atomic(b"{}")
        names.append(folder.location.name)

    assert names == ["experiment_run", "experiment_run_1", "experiment_run_2"]


CLAIMS = f"""
import sys
from core.run import RunFolder

print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    print(RunFolder.create("{BUCKET}/claimed", "experiment", "run").location.name, flush=True)
"""


@pytest.mark.usefixtures("ambient")
def test_runs_that_start_together_do_not_take_each_others_folder() -> None:
    command = [sys.executable, "-c", CLAIMS]
    runs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]
    for run in runs:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"

    for run in runs:
        assert run.stdin is not None
        run.stdin.write("go\n")
    names = [name for run in runs for name in run.communicate(timeout=120)[0].split()]

    assert len(names) == len(set(names)) == 6
    assert {"experiment_run", "experiment_run_1"} <= set(names)


def test_one_of_several_writers_creates_a_file(ambient: Any, stores: Any) -> None:
    place = Location(f"{BUCKET}/created/file")

    with ThreadPoolExecutor(4) as writers:
        written = list(writers.map(place.write_new, [b"%d" % number for number in range(4)]))

    assert written.count(True) == 1
    assert place.read_bytes() == b"%d" % written.index(True)


def test_a_request_that_was_answered_too_late_is_known_again(ambient: Any, stores: Any, proxy: Any) -> None:
    ambient(endpoint=proxy.endpoint)
    faults = iter(["cut"])
    proxy.fault = lambda method, path: next(faults, "") if method == "PUT" else ""

    assert Location(f"{BUCKET}/created/late").write_new(b"mine")

    assert stores[0].contents("created")["bucket/created/late"] == b"mine"


# Secrets


COMMANDS = {
    "train": (0, ["train", "-c", "config.yaml", "--dataset", f"{BUCKET}/data/one.csv", "-od", "runs"]),
    "evaluate": (0, ["evaluate", "-m", "runs/experiment_run", "--dataset", f"{BUCKET}/folder", "-od", "results"]),
    "predict": (0, ["predict", "-m", "runs/experiment_run", "--dataset", f"{BUCKET}/folder", "-o", "p.csv"]),
    "preprocess": (0, ["preprocess", "-c", "config.yaml", "--dataset", f"{BUCKET}/data/one.csv"]),
    "bad column": (2, ["train", "-c", "config.yaml", "--dataset", f"{BUCKET}/data/one.csv", "--set", "SET"]),
    "bad bucket": (2, ["train", "-c", "config.yaml", "--dataset", f"{BUCKET}/folder", "--set", "BUCKET"]),
    "bad secret": (2, ["train", "-c", "config.yaml", "--dataset", f"{BUCKET}/folder", "--set", "SECRET"]),
    "bad option": (2, ["train", "-c", "config.yaml", "--dataset", f"{BUCKET}/folder", "--set", "OPTION"]),
}
OVERRIDES = {
    "SET": "output_features.0.column=nowhere",
    "BUCKET": "backend.cache_dir=s3://no-such-bucket/cache",
    "SECRET": "backend.cache_credentials.s3.secret=another-secret-that-is-wrong",
    "OPTION": "backend.cache_credentials.s3.no_such_option=another-secret-that-is-wrong",
}


@pytest.mark.slow
def test_no_command_says_or_writes_a_secret(
    ambient: Any,
    stores: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    credentials = {"s3": stores[1].options()}
    backend = {"type": "local", "cache_dir": f"{BUCKET}/quiet", "cache_credentials": credentials}
    Path("config.yaml").write_text(json.dumps(CONFIG | {"backend": backend}))
    secrets = [word for store in stores for pair in store.keys.values() for word in pair]
    secrets.append("another-secret-that-is-wrong")
    caplog.set_level(logging.DEBUG, "core")

    for name, (expected, words) in COMMANDS.items():
        command = [OVERRIDES.get(word, word) for word in words]
        monkeypatch.setattr(sys, "argv", ["core", *command])
        status = main(command)

        said = "".join(capfd.readouterr()) + caplog.text
        assert (name, status) == (name, expected), said
        assert (name, [secret for secret in secrets if secret in said]) == (name, [])

    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del written[str(tmp_path / "config.yaml")]
    written |= {path: data for store in stores for path, data in store.contents().items()}
    assert any(path.endswith("description.json") for path in written)
    assert [path for path in stores[1].contents("quiet") if path.endswith("manifest.json")]
    assert [(path, secret) for path, data in written.items() for secret in secrets if secret.encode() in data] == []


# Failures on the way


def test_a_store_that_fails_now_and_then_is_asked_again(ambient: Any, stores: Any, proxy: Any) -> None:
    faults = itertools.cycle([*[""] * 6, "503", *[""] * 6, "drop", *[""] * 6, "cut"])
    proxy.fault = lambda method, path: next(faults)
    ambient(endpoint=proxy.endpoint)
    backend = {"type": "local", "cache_dir": f"{BUCKET}/flaky-cache"}

    run = core.Model(CONFIG | {"backend": backend}).train(f"{BUCKET}/folder", output_directory=f"{BUCKET}/flaky")

    assert set(proxy.faults) == {"503", "drop", "cut"}
    assert len(run.training_statistics["training"]["combined"]["loss"]) == 2
    core.Model.load(run.model_path)


def test_a_place_that_is_away_for_longer_is_waited_for(
    ambient: Any, stores: Any, proxy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    ambient(endpoint=proxy.endpoint)
    answers = itertools.chain(["503", "503"], itertools.repeat(""))
    # Requests that an earlier client still makes must not use the faults up.
    proxy.fault = lambda method, path: next(answers) if "one.csv" in path else ""

    with caplog.at_level(logging.DEBUG, "core"):
        content = Location(f"{BUCKET}/data/one.csv").read_bytes()

    assert content.startswith(b"a,kind,label")
    assert "trying again" in caplog.text
    assert not [secret for secret in stores[0].keys["owner"] if secret in caplog.text]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.patience.PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def test_a_store_that_dies_while_the_cache_is_filled_has_no_half_entry(
    impatient: None, ambient: Any, stores: Any, proxy: Any
) -> None:
    written: list[str] = []

    def dies(method: str, path: str) -> str:
        if method == "PUT" and path.endswith(".parquet"):
            written.append(path)
            if len(written) == 2:
                proxy.stop()
                return "drop"
        return ""

    proxy.fault = dies
    credentials = {"s3": stores[0].options(endpoint=proxy.endpoint)}

    with pytest.raises(StorageError, match="cannot write it") as raised:
        process(f"{BUCKET}/data/one.csv", f"{BUCKET}/dying", credentials)

    assert raised.value.path.startswith(f"{BUCKET}/dying/.core_cache/")
    assert not [path for path in stores[0].contents("dying") if path.endswith("manifest.json")]
    proxy.start()
    made = process(f"{BUCKET}/data/one.csv", f"{BUCKET}/dying", credentials)
    assert not made.hit
    assert made.splits["training"].read(0, 1000).num_rows == made.splits["training"].rows


def test_a_store_that_dies_while_training_leaves_a_run_to_go_on_with(
    impatient: None, ambient: Any, stores: Any, proxy: Any
) -> None:
    class Dies(core.Callback):
        def on_checkpoint(self, **details: Any) -> None:
            proxy.stop()

    ambient(endpoint=proxy.endpoint)
    with pytest.raises(StorageError) as raised:
        core.Model(CONFIG, callbacks=[Dies()]).train(f"{BUCKET}/data/one.csv", output_directory=f"{BUCKET}/died")
    proxy.start()

    assert f"{BUCKET}/died/experiment_run" in str(raised.value)
    resumed = core.Model(CONFIG).train(model_resume_path=f"{BUCKET}/died/experiment_run")
    assert len(resumed.training_statistics["training"]["combined"]["loss"]) == 2
