from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def core(tmp_path: Path) -> Run:
    """`core WORDS…` in a process of its own, in an empty folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "core", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run
