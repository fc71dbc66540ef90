"""The site builds, every link in it leads somewhere, and the pages of reference say what the code does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.cli import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_fetched_from_elsewhere(site):
    page = (site / "tutorial" / "index.html").read_text()
    for attribute in ('src="http', "src='http", 'rel="stylesheet" href="http', "fonts.g"):
        assert attribute not in page


def test_every_command_has_its_help(site):
    page = (site / "reference" / "cli" / "index.html").read_text()
    for name in COMMANDS:
        assert f"usage: core {name}" in page


def test_every_key_is_explained(site):
    page = (site / "reference" / "config" / "index.html").read_text()
    for key in (
        "effective_batch_size",
        "window_size_bytes",
        "missing_value_strategy",
        "bucket_cap_mb",
        "zero_optimization",
    ):
        assert key in page
    assert "Rows of one optimiser step over all workers; 128 unless given." in page


def test_the_python_api_is_there(site):
    page = (site / "reference" / "python" / "index.html").read_text()
    for name in ("core.Model.train", "core.preprocess", "core.Callback.on_epoch_end", "NonFiniteLoss"):
        assert name in page
