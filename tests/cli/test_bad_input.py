"""Whatever is wrong with what the user gave: exit status 2, and a message that names it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import yaml
from safetensors.torch import load_file, save

from core.cli import main

ROWS = 30
COLUMNS: dict[str, Sequence[Any]] = {
    "x": range(ROWS),
    "c": ["red", "green", "blue"] * (ROWS // 3),
    "y": [0, 1] * (ROWS // 2),
}
CONFIG: dict[str, Any] = {
    "input_features": [{"name": "x", "type": "number"}, {"name": "c", "type": "category"}],
    "output_features": [{"name": "y", "type": "binary"}],
    "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 4},
    "trainer": {"epochs": 1},
}
TRAIN = "train -c config.yaml --dataset data.csv"
FILES = ("model.safetensors", "config.json", "metadata.json")
PREDICT = "predict -m model --dataset data.csv"


def csv(**columns: Sequence[Any]) -> str:
    """The data set with columns replaced or added."""
    table = COLUMNS | columns
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return "\n".join(lines) + "\n"


def features(kind: str, *declared: dict[str, Any]) -> dict[str, Any]:
    return {f"{kind}_features": list(declared)}


@attrs.frozen
class Case:
    """A command line in a folder with `config.yaml`, `data.csv`, a trained `model` and its `run`.

    Attributes:
        says: each of these is in the message.
        config: laid over CONFIG, or the text of the file.
        data: the text of `data.csv`.
        files: others.
    """

    words: str
    says: tuple[str, ...] = attrs.field(converter=lambda says: (says,) if isinstance(says, str) else tuple(says))
    config: dict[str, Any] | str = attrs.field(factory=dict)
    data: str = attrs.field(factory=csv)
    files: dict[str, bytes] = attrs.field(factory=dict)


DATA = {
    "missing file": Case(
        "train -c config.yaml --dataset dat.csv", ("dat.csv", "no such file", "did you mean 'data.csv'")
    ),
    "missing url protocol": Case(
        "train -c config.yaml --dataset nope://a.csv", ("nope://a.csv", "Protocol not known: nope")
    ),
    "empty file": Case(TRAIN, ("data.csv", "empty"), data=""),
    "blank file": Case(TRAIN, ("data.csv", "no header"), data="\n\n"),
    "header alone": Case(TRAIN, ("data.csv", "no rows"), data="x,c,y\n"),
    "empty folder": Case("train -c config.yaml --dataset empty", ("empty", "no data file"), files={"empty/.keep": b""}),
    "glob without a match": Case("train -c config.yaml --dataset 'part-*.csv'", ("part-*.csv", "no file matches")),
    "unknown suffix": Case("train -c config.yaml --dataset a.xyz", ("a.xyz", ".xyz", ".csv"), files={"a.xyz": b"1"}),
    "no suffix": Case("train -c config.yaml --dataset a", ("a:", "no suffix"), files={"a": b"1"}),
    "missing input column": Case(
        TRAIN, ("input_features.z", "no column 'z'"), features("input", {"name": "z", "type": "number"})
    ),
    "missing output column": Case(
        TRAIN, ("output_features.Y", "did you mean 'y'?"), features("output", {"name": "Y", "type": "binary"})
    ),
    "several missing columns": Case(
        TRAIN,
        ("2 problems", "input_features.z", "output_features.Y"),
        features("input", {"name": "z", "type": "number"}) | features("output", {"name": "Y", "type": "binary"}),
    ),
    "output without values": Case(TRAIN, ("output_features.y", "no value"), data=csv(y=[""] * ROWS)),
    "number without values": Case(TRAIN, ("input_features.x", "no value"), data=csv(x=[""] * ROWS)),
    "category without values": Case(TRAIN, ("input_features.c", "no value"), data=csv(c=[""] * ROWS)),
    "text without values": Case(
        TRAIN, ("input_features.c", "no value"), features("input", {"name": "c", "type": "text"}), csv(c=[""] * ROWS)
    ),
    "binary input without values": Case(
        TRAIN, ("input_features.c", "no value"), features("input", {"name": "c", "type": "binary"}), csv(c=[""] * ROWS)
    ),
    "binary output of one class": Case(TRAIN, ("output_features.y", "one class"), data=csv(y=[1] * ROWS)),
    "category output of one class": Case(
        TRAIN,
        ("output_features.c", "one class"),
        features("input", {"name": "x", "type": "number"}) | features("output", {"name": "c", "type": "category"}),
        csv(c=["red"] * ROWS),
    ),
    "binary output of three values": Case(
        TRAIN, ("output_features.y", "maybe"), data=csv(y=["yes", "no", "maybe"] * (ROWS // 3))
    ),
    "unparsable number": Case(
        TRAIN,
        ("input_features.x (column 'x', row 30)", "'ten'", "a finite number"),
        data=csv(x=[*range(ROWS - 1), "ten"]),
    ),
    "infinite number": Case(
        TRAIN, ("input_features.x (column 'x', row 1)", "'inf'"), data=csv(x=["inf", *range(ROWS - 1)])
    ),
    "unparsable values of two features": Case(
        TRAIN,
        ("2 problems", "input_features.x", "'ten'", "output_features.c", "'red'"),
        features("output", {"name": "c", "type": "number"}) | features("input", {"name": "x", "type": "number"}),
        csv(x=["ten", *range(ROWS - 1)]),
    ),
    "duplicate headers": Case(
        TRAIN, ("data.csv", "several columns have the same name: 'x'"), data="x,x,c,y\n1,1,a,0\n"
    ),
    "ragged rows": Case(TRAIN, ("data.csv:3", "4 fields, the header 3"), data="x,c,y\n1,a,0\n2,b,1,9\n"),
    "quote that never ends": Case(TRAIN, ("data.csv",), data='x,c,y\n1,"a,0\n2,b,1\n'),
    "truncated gzip": Case(
        "train -c config.yaml --dataset a.csv.gz",
        ("a.csv.gz", "damaged gzip data", "copy it again"),
        files={"a.csv.gz": gzip.compress(csv(noise=[i * i * 7919 for i in range(ROWS)]).encode())[:60]},
    ),
    "not gzip": Case(
        "train -c config.yaml --dataset a.csv.gz", ("a.csv.gz", "damaged gzip data"), files={"a.csv.gz": csv().encode()}
    ),
    "bytes that are no text": Case(
        TRAIN.replace("data.csv", "a.csv"), ("a.csv", "not text"), files={"a.csv": bytes(range(256))}
    ),
    "undecodable byte in UTF-8": Case(
        TRAIN.replace("data.csv", "a.csv"),
        ("a.csv:4", "0xff", "UTF-8"),
        files={"a.csv": "x,c,y\n1,é,0\n2,ü,1\n".encode() + b"3,\xff,0\n4,a,1\n"},
    ),
    "Parquet that is none": Case(
        TRAIN.replace("data.csv", "a.parquet"),
        ("a.parquet", "not a readable Parquet file"),
        files={"a.parquet": b"PAR1 no"},
    ),
    "Excel that is none": Case(
        TRAIN.replace("data.csv", "a.xlsx"), ("a.xlsx", "not a readable Excel file"), files={"a.xlsx": b"no"}
    ),
    "Feather that is none": Case(
        TRAIN.replace("data.csv", "a.feather"), ("a.feather", "not a readable"), files={"a.feather": b"no"}
    ),
    "JSON that is none": Case(TRAIN.replace("data.csv", "a.json"), ("a.json:1:2",), files={"a.json": b"[}"}),
    "JSON lines that are none": Case(
        TRAIN.replace("data.csv", "a.jsonl"), ("a.jsonl:2:",), files={"a.jsonl": b'{"x": 1}\n{"x"\n'}
    ),
    "no data at all": Case("train -c config.yaml", ("--dataset: no dataset is given",)),
    "both a dataset and a training set": Case(
        TRAIN + " --training-set data.csv",
        ("--training-set: both a dataset and a training set are given", "--dataset alone"),
    ),
    "a test set alone": Case(
        "train -c config.yaml --test-set data.csv",
        ("--test-set: a test set is given but no training set", "Give --training-set too"),
    ),
    "training rows too few": Case(
        TRAIN,
        ("preprocessing.split", "no rows are left for training"),
        data="x,c,y\n1,a,0\n",
        config={"preprocessing": {"split": {"type": "random", "probabilities": [0.1, 0.1, 0.8]}}},
    ),
    "fixed split without training rows": Case(
        TRAIN,
        ("preprocessing.split", "no rows are left for training"),
        {"preprocessing": {"split": {"type": "fixed", "column": "part"}}},
        csv(part=[1, 2] * (ROWS // 2)),
    ),
    "missing split column": Case(
        TRAIN,
        ("preprocessing.split.column", "no column 'part'"),
        {"preprocessing": {"split": {"type": "fixed", "column": "part"}}},
    ),
    "split column of another kind": Case(
        TRAIN,
        ("preprocessing.split.column", "'red'", "row 1"),
        {"preprocessing": {"split": {"type": "fixed", "column": "c"}}},
    ),
    "split column without a value": Case(
        TRAIN,
        ("preprocessing.split.column", "row 2"),
        {"preprocessing": {"split": {"type": "fixed", "column": "part"}}},
        csv(part=[0, ""] * (ROWS // 2)),
    ),
    "split by times that are none": Case(
        TRAIN,
        ("preprocessing.split.column", "'red'"),
        {"preprocessing": {"split": {"type": "datetime", "column": "c"}}},
    ),
}

CONFIGS = {
    "not given": Case("train --dataset data.csv", ("--config", "no config given")),
    "missing": Case("train -c confg.yaml --dataset data.csv", ("confg.yaml", "no such file")),
    "a folder": Case("train -c model --dataset data.csv", ("model", "is a folder")),
    "empty": Case(TRAIN, ("config.yaml", "empty"), ""),
    "unreadable YAML": Case(TRAIN, "config.yaml:2:1: not readable as YAML", "input_features: [\n"),
    "tab in YAML": Case(TRAIN, "config.yaml:2:1", "trainer:\n\tepochs: 1\n"),
    "repeated key": Case(TRAIN, ("config.yaml:2:1", "trainer"), "trainer: {epochs: 1}\ntrainer: {epochs: 2}\n"),
    "a list": Case(TRAIN, ("config.yaml", "input_features"), "- 1\n"),
    "unknown key": Case(TRAIN, ("trainer.epoch", "did you mean 'epochs'?"), {"trainer": {"epoch": 1}}),
    "wrong type": Case(TRAIN, ("trainer.epochs", "found 'many'", "a whole number"), {"trainer": {"epochs": "many"}}),
    "out of range": Case(TRAIN, ("trainer.epochs", "found 0"), {"trainer": {"epochs": 0}}),
    "two errors": Case(
        TRAIN,
        ("2 problems", "trainer.epochs", "combiner.output_size"),
        {"trainer": {"epochs": "many"}, "combiner": {"output_size": -1}},
    ),
    "unknown feature type": Case(
        TRAIN,
        ("input_features", "'nubmer'", "did you mean 'number'?"),
        features("input", {"name": "x", "type": "nubmer"}),
    ),
    "duplicate feature names": Case(
        TRAIN,
        ("config.yaml:3:3: input_features.1.name", "used twice", "'x'"),
        features("input", *[{"name": "x", "type": "number"}] * 2),
    ),
    "output that is an input": Case(
        TRAIN, ("output_features.x.name", "is an input too", "'x'"), features("output", {"name": "x", "type": "number"})
    ),
    "no inputs": Case(TRAIN, "input_features", features("input")),
    "split fractions": Case(
        TRAIN,
        ("preprocessing.split.probabilities", "sum to 1"),
        {"preprocessing": {"split": {"type": "random", "probabilities": [0.5, 0.1, 0.1]}}},
    ),
    "split without training": Case(
        TRAIN,
        ("preprocessing.split.probabilities", "no rows for training"),
        {"preprocessing": {"split": {"type": "random", "probabilities": [0, 0.5, 0.5]}}},
    ),
    "config given twice": Case(TRAIN + " -cs '{}'", ("-cs", "not allowed with")),
    "config text": Case("train -cs 'a: [' --dataset data.csv", "config:2:1: not readable as YAML"),
    "set an unknown path": Case(TRAIN + " --set trainer.epoch=1", ("--set trainer.epoch", "did you mean 'epochs'?")),
    "set of nothing": Case(TRAIN + " --set trainer.epochs", ("--set trainer.epochs", "--set section.key=value")),
    "set a wrong value": Case(TRAIN + " --set trainer.epochs=lots", ("--set trainer.epochs", "'lots'")),
    "environment variable": Case(
        TRAIN, ("trainer.epochs", "NO_SUCH_VARIABLE"), {"trainer": {"epochs": "${NO_SUCH_VARIABLE}"}}
    ),
    "unknown validation metric": Case(
        TRAIN, ("trainer.validation_metric", "rocauc", "roc_auc"), {"trainer": {"validation_metric": "rocauc"}}
    ),
}

BACKENDS = {
    "unknown": Case(TRAIN + " -b slurm", ("backend", "'slurm'", "local")),
    "unknown strategy": Case(
        TRAIN + " -b 'trainer: {strategy: dpd}'", ("backend.trainer.strategy", "'dpd'", "did you mean 'ddp'?")
    ),
    "workers of a strategy for one": Case(
        TRAIN + " -b 'trainer: {strategy: single, num_workers: 2}'", ("backend.trainer.strategy", "single", "ddp")
    ),
    "missing file": Case(TRAIN + " -b backend.yaml", ("backend.yaml", "no such file")),
    "cache that cannot be made": Case(
        TRAIN + " -b 'cache_dir: data.csv/cache'",
        ("backend.cache_dir: ", "data.csv/cache", "not a folder"),
    ),
    "credentials that are none": Case(
        TRAIN + " -b 'cache_credentials: data.csv'", ("backend.cache_credentials", "data.csv")
    ),
}

OPTIONS = {
    "unknown command": Case("trian", ("unknown command 'trian'", "did you mean train?")),
    "unknown option": Case(TRAIN + " --epochs 3", "unknown option --epochs"),
    "random seed": Case(TRAIN + " --random-seed x", ("--random-seed", "'x'")),
    "negative random seed": Case(TRAIN + " --random-seed -1", ("--random-seed", "-1")),
    "random seed beyond all": Case(
        TRAIN + " --random-seed 9223372036854775808", ("--random-seed", "9223372036854775807")
    ),
    "output directory in the way": Case(TRAIN + " -od data.csv", ("data.csv", "--output-directory")),
    "output directory below a file": Case(TRAIN + " -od data.csv/runs", ("data.csv", "--output-directory")),
    "experiment name with a slash": Case(TRAIN + " --experiment-name a/b", ("--experiment-name", "a/b")),
    "resume what is missing": Case("train -mrp nowhere", ("nowhere", "no such run folder")),
    "resume what is no run": Case("train -mrp model", ("model", "not a run's folder")),
    "resume with another config": Case(
        TRAIN + " -mrp run",
        ("input_features", "run", "another config"),
        features("input", {"name": "x", "type": "number"}),
    ),
    "resume and load": Case(TRAIN + " -mrp run -mlp model", ("-mlp", "not allowed with")),
    "load what is missing": Case(TRAIN + " -mlp nowhere", ("nowhere", "no such model folder")),
    "load other weights": Case(
        TRAIN + " -mlp model",
        ("--model-load-path", "model", "do not fit"),
        {"combiner": {"type": "concat", "output_size": 5}},
    ),
    "no model": Case("predict --dataset data.csv", ("--model-path",)),
    "no prediction data": Case("predict -m model", ("--dataset",)),
    "missing model": Case("predict -m nowhere --dataset data.csv", ("nowhere", "no such model folder")),
    "a file as model": Case("predict -m data.csv --dataset data.csv", ("data.csv", "no such model folder")),
    "a folder without a model": Case(
        "predict -m empty --dataset data.csv", ("empty", "not a complete model folder"), files={"empty/.keep": b""}
    ),
    "missing prediction data": Case("predict -m model --dataset dat.csv", ("dat.csv", "no such file")),
    "prediction data without a feature": Case(PREDICT, ("input_features.x", "no column 'x'"), data="X,c\n1,red\n"),
    "evaluation data without targets": Case(
        "evaluate -m model --dataset data.csv", ("output_features.y", "no column 'y'"), data="x,c\n1,red\n"
    ),
    "evaluation data with empty targets": Case(
        "evaluate -m model --dataset data.csv", ("no row", "y"), data=csv(y=[""] * ROWS)
    ),
    "unparsable prediction data": Case(
        PREDICT, ("input_features.x (column 'x', row 2)", "'ten'"), data="x,c\n1,red\nten,red\n"
    ),
    "prediction data without rows": Case(PREDICT, ("data.csv", "no rows"), data="x,c\n"),
    "unknown output suffix": Case(PREDICT + " --output p.xlsx", ("--output", "p.xlsx", ".parquet", ".csv", ".jsonl")),
    "output below a file": Case(PREDICT + " --output data.csv/p.csv", ("data.csv",)),
    "evaluation below a file": Case("evaluate -m model --dataset data.csv -od data.csv/out", ("data.csv",)),
    "missing index column": Case(PREDICT + " --index-column id", ("--index-column", "no column 'id'")),
    "batch of nothing": Case(PREDICT + " --batch-size 0", ("--batch-size", "a whole number of at least 1, not '0'")),
    "batch that is no number": Case(
        PREDICT + " --batch-size many", ("--batch-size", "a whole number of at least 1, not 'many'")
    ),
    "unknown split": Case(PREDICT + " --split train", ("--split", "train", "training")),
    "no test rows": Case(
        "experiment -c config.yaml --dataset data.csv",
        ("preprocessing.split", "no test rows"),
        {"preprocessing": {"split": {"type": "random", "probabilities": [0.9, 0.1, 0]}}},
    ),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder."""
    place = tmp_path_factory.mktemp("trained")
    (place / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (place / "data.csv").write_text(csv())
    words = ["-c", str(place / "config.yaml"), "--dataset", str(place / "data.csv"), "-od", str(place), "--quiet"]
    assert main(["train", *words]) == 0
    return place / "experiment_run"


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a `run` and its `model`, where the command is started."""
    shutil.copytree(trained, tmp_path / "run")
    shutil.copytree(trained / "model", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(**cases: dict[str, Case]) -> list[Any]:
    return [
        pytest.param(case, id=f"{kind}: {name}") for kind, by_name in cases.items() for name, case in by_name.items()
    ]


@pytest.mark.parametrize("case", table(data=DATA, config=CONFIGS, backend=BACKENDS, option=OPTIONS))
def test_the_message_names_what_is_wrong(here: Path, capsys: pytest.CaptureFixture[str], case: Case) -> None:
    # given
    config = case.config if isinstance(case.config, str) else yaml.safe_dump(CONFIG | case.config, sort_keys=False)
    (here / "config.yaml").write_text(config)
    (here / "data.csv").write_text(case.data)
    for name, content in case.files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_bytes(content)
    # when
    status = main(shlex.split(case.words))
    # then
    refused(capsys, status, case.says)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_where_there_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (here / "data.csv").write_text(csv())

    status = main(shlex.split(TRAIN + " -b 'trainer: {use_gpu: true}'"))

    refused(capsys, status, ["backend.trainer.use_gpu", "no usable GPU"])


Damage = Callable[[Path], Any]


def cut(name: str) -> Damage:
    """The first half of a file."""
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def overwritten(name: str, text: str) -> Damage:
    return lambda folder: (folder / name).write_text(text)


def changed(name: str, change: Callable[[Any], Any]) -> Damage:
    """Readable JSON, and not what was written."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return damage


def other_weights(folder: Path) -> None:
    """Tensors of another shape, whole and with the right checksum."""
    weights = {name: torch.zeros(2, *tensor.shape) for name, tensor in load_file(folder / "model.safetensors").items()}
    content = save(weights)
    (folder / "model.safetensors").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    changed("metadata.json", lambda metadata: metadata.update(weights_sha256=digest))(folder)


def flipped_bit(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)


@pytest.mark.parametrize("words", [PREDICT, "evaluate -m model --dataset data.csv", TRAIN + " -mlp model"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        *(
            pytest.param(lambda folder, name=name: (folder / name).unlink(), [f"{name} missing"], id=f"no {name}")
            for name in FILES
        ),
        *(pytest.param(cut(name), [f"model/{name}: damaged"], id=f"half {name}") for name in FILES),
        *(pytest.param(overwritten(name, ""), [f"model/{name}: damaged"], id=f"empty {name}") for name in FILES),
        pytest.param(overwritten("metadata.json", "[]"), ["metadata.json", "another format", "format 1"], id="a list"),
        pytest.param(overwritten("config.json", "[]"), ["model/config.json: damaged"], id="a list for a config"),
        pytest.param(
            changed("metadata.json", lambda metadata: metadata.update(format=2)),
            ["metadata.json", "another format", "found 2", "format 1"],
            id="format of the future",
        ),
        *(
            pytest.param(
                changed("metadata.json", lambda metadata, key=key: metadata.pop(key)),
                ["model/metadata.json: damaged", key],
                id=f"no {key}",
            )
            for key in ("features", "weights_sha256", "random_seed")
        ),
        pytest.param(
            changed("metadata.json", lambda metadata: metadata["features"].pop("x")),
            ["model/metadata.json: damaged", "'x'"],
            id="no metadata of a feature",
        ),
        pytest.param(
            changed("config.json", lambda config: config.pop("output_features")),
            ["model/config.json: damaged", "output_features"],
            id="config without outputs",
        ),
        pytest.param(flipped_bit, ["model/model.safetensors: damaged", "checksum"], id="a flipped bit"),
        pytest.param(other_weights, ["model", "size mismatch"], id="weights of another shape"),
    ],
)
def test_a_damaged_model(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, damage: Damage, says: list[str]
) -> None:
    (here / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (here / "data.csv").write_text(csv())
    damage(here / "model")

    status = main(shlex.split(words))

    refused(capsys, status, says)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (overwritten("description.json", "{"), ["run/description.json: damaged"]),
        (overwritten("description.json", "{}"), ["run/description.json: damaged"]),
        (changed("description.json", lambda run: run.pop("random_seed")), ["run/description.json: damaged"]),
        (
            changed("description.json", lambda run: run.update(datasets={"dataset": "gone.csv"})),
            ["gone.csv", "no such file"],
        ),
        (changed("description.json", lambda run: run.update(datasets=None)), ["in memory", "Give the same data again"]),
        (lambda run: cut(f"checkpoints/{checkpoint(run)}/state.json")(run), ["run/checkpoints", "cannot be read"]),
        (
            lambda run: cut(f"checkpoints/{checkpoint(run)}/model.safetensors")(run),
            ["run/checkpoints", "cannot be read"],
        ),
        (lambda run: (run / "checkpoints" / checkpoint(run) / "optimizer.safetensors").unlink(), ["run/checkpoints"]),
    ],
    ids=["half", "empty", "no seed", "data that is gone", "data in memory", "state", "weights", "optimiser"],
)
def test_a_damaged_run(here: Path, capsys: pytest.CaptureFixture[str], damage: Damage, says: list[str]) -> None:
    damage(here / "run")

    status = main(["train", "-mrp", "run", "--set", "trainer.epochs=2"])

    refused(capsys, status, says)


def checkpoint(run: Path) -> str:
    (folder,) = (run / "checkpoints").iterdir()
    return folder.name


def refused(capsys: pytest.CaptureFixture[str], status: int, says: Sequence[str]) -> None:
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert status == 2, err
    assert out == ""
    for fragment in says:
        assert fragment in err
