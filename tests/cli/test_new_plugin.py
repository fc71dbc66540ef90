"""A generated plugin is right as it is: style, types, its own tests; and names that cannot be are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.cli import main

ROOT = Path(__file__).parents[2]
KINDS = ("strategy", "processor", "loader")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A plugin of each kind."""
    place = tmp_path_factory.mktemp("plugins")
    for kind in KINDS:
        assert main(["new-plugin", kind, f"my-{kind}", "--directory", str(place)]) == 0
    return {kind: place / f"core-my-{kind}" for kind in KINDS}


def run(*command: str, cwd: Path, variables: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_it_says_what_to_do_next(tmp_path, capsys):
    assert main(["new-plugin", "loader", "columns", "--directory", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"pip install -e '{tmp_path / 'core-columns'}[test]'" in out
    assert "core list-plugins" in out
    assert "pytest" in out


@pytest.mark.parametrize("kind", KINDS)
def test_its_style_is_right(folders, kind):
    for words in (["check"], ["format", "--check"]):
        run("ruff", *words, "--no-cache", ".", cwd=folders[kind])


def test_its_types_are_right(folders):
    sources = os.pathsep.join(str(folder / "src") for folder in folders.values())
    packages = [word for kind in KINDS for word in ("-p", f"core_my_{kind}")]
    run("mypy", *packages, cwd=ROOT, variables={"MYPYPATH": sources})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_passes_its_tests(folders, kind, tmp_path):
    # given: as pip would have installed it
    site = tmp_path / "site"
    info = site / f"core_my_{kind}-0.1.0.dist-info"
    info.mkdir(parents=True)
    project = tomllib.loads((folders[kind] / "pyproject.toml").read_text())["project"]
    [(word, module)] = project["entry-points"]["core.plugins"].items()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[core.plugins]\n{word} = {module}\n")
    (site / module).symlink_to(folders[kind] / "src" / module)
    # when
    told = run("pytest", "-q", "-p", "no:cacheprovider", cwd=folders[kind], variables={"PYTHONPATH": str(site)})
    # then
    assert "passed" in told
    assert "failed" not in told


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Local SGD", "is no name for a plugin"),
        ("-x", "is no name for a plugin"),
        ("ddp", "core-ddp .* has a strategy of this name"),
        ("dask", "core-dask is a distribution of core's own"),
        ("single", "core .* has a strategy of this name"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path, capsys, name, message):
    assert main(["new-plugin", "strategy", "--directory", str(tmp_path), "--", name]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "core-mine").mkdir()
    assert main(["new-plugin", "loader", "mine", "--directory", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert list((tmp_path / "core-mine").iterdir()) == []
