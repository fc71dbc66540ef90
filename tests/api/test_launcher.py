"""Under a launcher that starts several processes, what is done once is done by one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from core.backends.detect import is_coordinator
from core.cli import main

CONFIG = {
    "input_features": [{"name": "x", "type": "number"}],
    "output_features": [{"name": "y", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
    "trainer": {"epochs": 1},
    "backend": {"trainer": {"strategy": "ddp"}},
}


@pytest.mark.parametrize(
    ("environment", "coordinator"),
    [
        ({}, True),
        ({"RANK": "1"}, True),  # no launcher: half a rendezvous
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, True),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, False),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4"}, False),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, True),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, False),
    ],
)
def test_who_does_what_is_done_once(environment, coordinator):
    assert is_coordinator(environment) is coordinator


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(40)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["preprocess", "-c", "config.yaml", "--dataset", "data.csv"],
        ["predict", "-m", "missing", "--dataset", "data.csv"],
        ["evaluate", "-m", "missing", "--dataset", "data.csv"],
    ],
    ids=lambda words: words[0],
)
def test_the_others_are_silent(here, monkeypatch, capsys, words):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)

    assert main(words) == 0
    assert capsys.readouterr() == ("", "")
    assert {path.name for path in here.iterdir()} == {"config.yaml", "data.csv"}


@pytest.mark.parametrize("word", ["--local_rank=1", "--local-rank=1"])
def test_the_word_that_a_launcher_puts_first_is_passed_over(monkeypatch, capsys, word):
    assert main([word, "list-plugins"]) == 2
    capsys.readouterr()
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)

    assert main([word, "list-plugins"]) == 0


@pytest.mark.slow
def test_torchrun(here):
    def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "core"]
        done = subprocess.run([*launcher, *words], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done

    trained = torchrun("train", "-c", "config.yaml", "--dataset", "data.csv", "-od", ".")
    predicted = torchrun("predict", "-m", "experiment_run", "--dataset", "data.csv", "-o", "p.csv")
    experiment = torchrun("experiment", "-c", "config.yaml", "--dataset", "data.csv", "-od", "other")

    assert trained.stdout.count("best weights") == 1
    assert predicted.stdout.count("predictions") == 1
    assert len(Path("p.csv").read_text().splitlines()) == 41
    assert experiment.stdout.count("best weights") == 1
    assert [path.name for path in Path("other").iterdir()] == ["experiment_run"]
    assert Path("other/experiment_run/predictions.parquet").is_file()
