"""The command that compiles Horovod, up to the compiling."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core_horovod import build


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "core_horovod.build", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def fake_cmake(folder: Path, version: str) -> Path:
    path = folder / "cmake"
    path.write_text(f"#!/bin/sh\necho cmake version {version}\n")
    path.chmod(0o755)
    return path


def test_everything_that_is_missing_is_said_at_once(tmp_path):
    done = run({"PATH": str(tmp_path)})

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    for tool in ("a C++ compiler", "make", "cmake >= 3.17"):
        assert tool in line


def test_an_old_cmake_is_told_from_none(tmp_path):
    done = run({"PATH": str(tmp_path), "HOROVOD_CMAKE": str(fake_cmake(tmp_path, "3.13.4"))})

    assert "cmake >= 3.17, this one is 3.13" in done.stderr


def test_a_gpu_build_needs_the_cuda_compiler(tmp_path):
    assert "nvcc" in run({"PATH": str(tmp_path), "HOROVOD_CUDA_HOME": str(tmp_path)}, "--gpu").stderr


@pytest.mark.parametrize(
    ("variables", "gpu", "expected"),
    [
        ({}, False, {"HOROVOD_WITHOUT_MPI": "1", "HOROVOD_WITH_GLOO": "1"}),
        ({"HOROVOD_WITH_MPI": "1"}, False, {"HOROVOD_WITH_MPI": "1"}),
        ({}, True, {"HOROVOD_GPU_OPERATIONS": "NCCL"}),
        ({"HOROVOD_GPU_OPERATIONS": "MPI"}, True, {"HOROVOD_GPU_OPERATIONS": "MPI"}),
    ],
)
def test_variables_of_the_user_win(variables, gpu, expected):
    flags = build.build_flags(variables, gpu=gpu)

    assert expected.items() <= flags.items()
    assert not {"HOROVOD_WITH_MPI", "HOROVOD_WITHOUT_MPI"} <= flags.keys()


def test_a_wheel_is_found_again_for_the_same_flags_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags = build.build_flags({}, gpu=False)
    folder = build.wheel_folder(flags, "1")
    folder.mkdir(parents=True)
    (folder / "horovod.whl").touch()

    assert folder.is_relative_to(tmp_path / "core" / "wheels")
    assert build.cached(flags, "1") == folder / "horovod.whl"
    assert build.cached(flags, None) is None
    assert build.cached(build.build_flags({}, gpu=True), "1") is None
