"""Compile Horovod for the torch of this environment, and install it: ``python -m core_horovod.build``.

Horovod is published as source and asks for C++14, where torch needs C++17: the compiler starts through a script that
adds the flags which win. What `core_horovod.patches` mends is not needed to build. The wheel is kept, under
``${XDG_CACHE_HOME:-~/.cache}/core/wheels``, so the next environment of the same kind gets it in seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata, util
from pathlib import Path

from core_horovod import BUILD_COMMAND
from core_horovod.patches import PATCHES

VERSION = "0.28.1"
CMAKE_MINIMUM = (3, 17)
TOOLS = ("setuptools", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml", "cffi")
"""What its setup.py imports, or would fetch by itself while it builds."""

DEFAULTS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=BUILD_COMMAND,
        description=f"Compile Horovod {VERSION} for the torch of this environment, and install it here.",
        epilog="Horovod's own variables (HOROVOD_NCCL_HOME, HOROVOD_WITH_MPI=1, …) are handed on.",
    )
    parser.add_argument("-O", dest="optimise", choices=["1", "2", "3"], help="how much to optimise; Horovod's own is 3")
    parser.add_argument("--gpu", action="store_true", help="exchange gradients through NCCL; needs nvcc and NCCL")
    args = parser.parse_args(arguments)
    flags = build_flags(os.environ, gpu=args.gpu)
    if missing := list(_missing(os.environ, gpu=args.gpu)):
        print(f"Horovod cannot be compiled here; missing: {'; '.join(missing)}", file=sys.stderr)
        return 1
    try:
        wheel = cached(flags, args.optimise) or _build(flags, args.optimise)
        _pip("install", "--quiet", str(wheel))
    except subprocess.CalledProcessError as error:
        print(f"{BUILD_COMMAND}: pip ended with exit status {error.returncode}; its output is above", file=sys.stderr)
        return 1
    print(f"installed {wheel.name}")
    return 0


def build_flags(environment: Mapping[str, str], *, gpu: bool) -> dict[str, str]:
    """The variables that decide what is compiled; what the user has set wins."""
    own = {key: value for key, value in environment.items() if key.startswith("HOROVOD_")}
    flags = dict(DEFAULTS)
    if "HOROVOD_WITH_MPI" not in own:
        flags["HOROVOD_WITHOUT_MPI"] = "1"
    if gpu:
        flags["HOROVOD_GPU_OPERATIONS"] = "NCCL"
        if bundled := _bundled_nccl():
            flags["HOROVOD_NCCL_HOME"] = str(bundled)
    return flags | own


def _bundled_nccl() -> Path | None:
    """NCCL as torch's wheel brings it."""
    for folder in map(Path, sys.path):
        if (folder / "nvidia" / "nccl" / "include" / "nccl.h").is_file():
            return folder / "nvidia" / "nccl"
    return None


def _missing(environment: Mapping[str, str], *, gpu: bool) -> Iterator[str]:
    if util.find_spec("torch") is None:
        yield "torch in this environment"
    if util.find_spec("pip") is None:
        yield "pip in this environment"
    if not any(map(shutil.which, filter(None, [environment.get("CXX"), "c++", "g++", "clang++"]))):
        yield "a C++ compiler (apt-get install g++)"
    if not shutil.which("make"):
        yield "make (apt-get install make)"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        yield f"Python's headers at {header.parent} (apt-get install python3-dev)"
    wanted = ".".join(map(str, CMAKE_MINIMUM))
    found = _cmake_version(_cmake(environment))
    if found is None:
        yield f"cmake >= {wanted} (pip install cmake)"
    elif found < CMAKE_MINIMUM:
        yield f"cmake >= {wanted}, this one is {'.'.join(map(str, found))} (pip install cmake)"
    nvcc = Path(environment.get("HOROVOD_CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    if gpu and not (shutil.which("nvcc") or nvcc.is_file()):
        yield "nvcc, the CUDA compiler of torch's CUDA version (set HOROVOD_CUDA_HOME)"


def _cmake(environment: Mapping[str, str]) -> str:
    return environment.get("HOROVOD_CMAKE", "cmake")


def _cmake_version(command: str) -> tuple[int, ...] | None:
    try:
        told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r"version (\d+)\.(\d+)", told)
    return tuple(map(int, match.groups())) if match else None


def cached(flags: Mapping[str, str], optimise: str | None) -> Path | None:
    """The wheel of an earlier build with the same torch, Python, platform, patches and flags."""
    return next(wheel_folder(flags, optimise).glob("*.whl"), None)


def wheel_folder(flags: Mapping[str, str], optimise: str | None) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "core", "wheels", f"horovod-{VERSION}+{_local_version(flags, optimise)}")


def _local_version(flags: Mapping[str, str], optimise: str | None) -> str:
    """What tells two builds apart. It becomes a part of the wheel's version, so pip tells them apart as well."""
    torch = metadata.version("torch")
    kind = [torch, sys.implementation.cache_tag, sysconfig.get_platform(), PATCHES, optimise, sorted(flags.items())]
    return f"torch{torch.replace('+', '.')}.{hashlib.sha256(repr(kind).encode()).hexdigest()[:8]}"


def _build(flags: Mapping[str, str], optimise: str | None) -> Path:
    folder = wheel_folder(flags, optimise)
    print(f"compiling Horovod {VERSION} for torch {metadata.version('torch')}; this takes some minutes", flush=True)
    _pip("install", "--quiet", *TOOLS)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as work:
        level = f" -O{optimise}" if optimise else ""
        environment = {
            **os.environ,
            **flags,
            "HOROVOD_LOCAL_VERSION": _local_version(flags, optimise),
            "HOROVOD_CMAKE": _script(work, "cmake", _CMAKE.format(cmake=_cmake(os.environ))),
            "CMAKE_CXX_COMPILER_LAUNCHER": _script(work, "compile", _COMPILE.format(flags=f"-std=c++17 -g0{level}")),
            "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # cmake 4 refuses the minimum that its gloo asks for
        }
        environment.setdefault("MAKEFLAGS", f"-j{min(8, os.cpu_count() or 1)}")
        # pip's own cache knows neither torch nor these variables.
        options = ("--quiet", "--no-cache-dir", "--no-deps", "--no-build-isolation")
        _pip("download", *options, "--no-binary", "horovod", "--dest", work, f"horovod=={VERSION}")
        source = _unpacked(Path(work, f"horovod-{VERSION}.tar.gz"))
        for edit in PATCHES:
            edit.apply(source)
        _pip("wheel", *options, "--wheel-dir", f"{work}/wheels", str(source), environment=environment)
        try:
            os.rename(f"{work}/wheels", folder)
        except OSError:
            if not folder.is_dir():  # unless another process was faster
                raise
    return next(folder.glob("*.whl"))


def _unpacked(archive: Path) -> Path:
    with tarfile.open(archive) as content:
        content.extractall(archive.parent, filter="data")
    return archive.parent / f"horovod-{VERSION}"


_CMAKE = """#!/bin/sh
# Where ccache is found, it would take the place of the script that adds the compiler's flags.
if [ "$1" = --build ]; then exec '{cmake}' "$@"; fi
exec '{cmake}' "$@" -DCCACHE_PROGRAM=OFF
"""

_COMPILE = """#!/bin/sh
exec "$@" {flags}
"""


def _script(folder: str, name: str, text: str) -> str:
    path = Path(folder, name)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def _pip(*arguments: str, environment: Mapping[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
