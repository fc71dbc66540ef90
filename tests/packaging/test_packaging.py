"""What users install, installed as they do: built wheels in a folder, and a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import attrs
import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
CONSTRAINTS = str(ROOT / "constraints.txt")
PLUGINS = ("dask", "ddp", "deepspeed", "fsdp", "horovod", "modin")

TRAIN_ON_TWO_WORKERS = """
input_features: [{name: x, type: number}]
output_features: [{name: y, type: number}]
trainer: {epochs: 1, batch_size: 8}
backend: {type: local, trainer: {strategy: ddp, num_workers: 2, use_gpu: false}}
"""


@attrs.frozen
class Environment:
    """A virtual environment with nothing in it but pip."""

    folder: Path

    def __attrs_post_init__(self) -> None:
        venv.create(self.folder, with_pip=True)

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """What a command that succeeds prints."""
        done = self.tried(*command, cwd=cwd)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def tried(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        program, *words = command
        return subprocess.run(
            [self.folder / "bin" / program, *words],
            cwd=cwd or self.folder,
            env=variables | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def pip_install(self, *words: str, cwd: Path | None = None) -> None:
        quiet = (
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        )  # byte code of torch alone takes half a minute
        self.run("pip", "install", *quiet, "-c", CONSTRAINTS, *words, cwd=cwd)

    def plugins(self) -> dict[tuple[str, str], str]:
        """(distribution, name) to status."""
        listing = json.loads(self.run("core", "list-plugins", "--json"))
        return {(plugin["distribution"], plugin["name"]): plugin["status"] for plugin in listing["plugins"]}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone would hold, so that builds leave no trace here and find none."""
    folder = tmp_path_factory.mktemp("checkout")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def dist(checkout: Path) -> Path:
    """The folder of built distributions: core's wheel is made from its sdist, so the sdist is complete."""
    python = [sys.executable, "-m"]
    subprocess.run([*python, "build", "--outdir", "dist", "."], cwd=checkout, check=True, capture_output=True)
    plugins = [f"./plugins/{name}" for name in PLUGINS]
    wheels = [*python, "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", *plugins]
    subprocess.run(wheels, cwd=checkout, check=True, capture_output=True)
    return checkout / "dist"


def wheel(dist: Path, name: str) -> zipfile.ZipFile:
    (path,) = dist.glob(f"{name}-*.whl")
    return zipfile.ZipFile(path)


def test_wheel_of_core_holds_the_package_and_nothing_else(dist: Path, checkout: Path) -> None:
    names = wheel(dist, "core").namelist()

    package = [name for name in names if ".dist-info/" not in name]
    source = [path.relative_to(checkout).as_posix() for path in (checkout / "core").rglob("*") if path.is_file()]
    assert sorted(package) == sorted(source)
    assert {"core/__init__.py", "core/py.typed", "core/hookspecs.py", "core/cli/list_plugins.py"} <= set(package)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_sdist_holds_what_a_packager_needs(dist: Path) -> None:
    (path,) = dist.glob("core-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "README.md", "LICENSE", "core/__init__.py", "tests/plugins/test_registry.py"} <= names
    assert not any(name.startswith(("plugins/", "dist/", ".git")) for name in names if name != ".gitignore")


@pytest.mark.parametrize("name", PLUGINS)
def test_wheel_of_a_plugin_holds_its_package_and_bounds_core(dist: Path, name: str) -> None:
    archive = wheel(dist, f"core_{name}")
    names = archive.namelist()

    assert f"core_{name}/__init__.py" in names
    assert all(file.startswith(f"core_{name}") for file in names)
    (metadata,) = (message_from_bytes(archive.read(file)) for file in names if file.endswith("METADATA"))
    assert "core<0.2,>=0.1" in metadata.get_all("Requires-Dist")


def test_every_plugin_is_an_extra_of_core(dist: Path) -> None:
    archive = wheel(dist, "core")
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    metadata = message_from_bytes(archive.read(name))

    assert {*PLUGINS, "ray", "all"} <= set(metadata.get_all("Provides-Extra"))
    for plugin in PLUGINS:
        brought = [line for line in metadata.get_all("Requires-Dist") if line.endswith(f"extra == '{plugin}'")]
        assert any(line.startswith(f"core-{plugin}") for line in brought)
        assert any(line.startswith("ray[data,train]") for line in brought)


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One with core and ddp from their wheels."""
    made = Environment(tmp_path_factory.mktemp("installed") / "environment")
    made.pip_install("--find-links", str(dist), "core[ddp]")
    return made


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{i},{2 * i + 1}\n" for i in range(40)))
    return str(path)


def test_extra_installs_from_a_folder_of_wheels_and_trains(environment: Environment, data: str, tmp_path: Path) -> None:
    assert environment.plugins()["core-ddp", "ddp"] == "ok"
    assert str(environment.folder) in environment.run("python", "-c", "import core; print(core.__file__)")
    train = ("core", "train", "--config-str", TRAIN_ON_TWO_WORKERS, "--dataset", data, "-od", "out")
    environment.run(*train, cwd=tmp_path)
    assert list((tmp_path / "out").glob("*/model/model.safetensors"))


def test_a_plugin_of_a_stranger_comes_and_goes(environment: Environment, data: str, tmp_path: Path) -> None:
    # given: a wheel of what `new-plugin` makes, and core from a wheel
    environment.run("core", "new-plugin", "strategy", "my-sgd", cwd=tmp_path)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "wheels", "./core-my-sgd"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    [built] = (tmp_path / "wheels").iterdir()
    # when
    environment.pip_install("--no-deps", str(built))
    # then: it is listed, checked, in the schema, and trains
    assert environment.plugins()["core-my-sgd", "my_sgd"] == "ok"
    assert "Megabytes of gradients that are sent at once." in environment.run("core", "schema")
    own = TRAIN_ON_TWO_WORKERS.replace("strategy: ddp", "strategy: {type: my_sgd, bucket_mb: 1}")
    train = ("core", "train", "--dataset", data, "-od", "out", "--config-str")
    environment.run(*train, own, cwd=tmp_path)
    [run] = (tmp_path / "out").iterdir()
    for wrong, told in (("bucket_mb: 0", "must be at least 1"), ("bucket_md: 1", "did you mean 'bucket_mb'?")):
        refused = environment.tried(*train, own.replace("bucket_mb: 1", wrong), cwd=tmp_path)
        assert refused.returncode == 2
        assert "backend.trainer.strategy.bucket_m" in refused.stderr
        assert told in refused.stderr

    # when
    environment.run("pip", "uninstall", "--quiet", "--yes", "core-my-sgd")
    # then: what names it says how to get it, and everything else goes on
    assert ("core-my-sgd", "my_sgd") not in environment.plugins()
    refused = environment.tried(*train, own, cwd=tmp_path)
    assert refused.returncode == 2
    assert "backend.trainer.strategy.type: unknown strategy (found 'my_sgd'" in refused.stderr
    assert "by custom core-my-sgd" in refused.stderr
    refused = environment.tried("core", "train", "--model-resume-path", str(run), cwd=tmp_path)
    assert refused.returncode == 2
    assert "the run had it from core-my-sgd 0.1.0: pip install it again" in refused.stderr
    environment.run("core", "predict", "-m", str(run), "--dataset", data, "-o", "predictions.csv", cwd=tmp_path)


def test_checkout_installs_with_one_command(checkout: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    plugins = [word for name in PLUGINS for word in ("-e", f"plugins/{name}")]
    environment.pip_install("-e", ".", *plugins, cwd=checkout)

    listed = environment.plugins()
    # No library of theirs had to be installed or compiled for them to be listed.
    assert {dist for dist, _ in listed} == {"core", *(f"core-{name}" for name in PLUGINS)}
    assert listed["core-ddp", "ddp"] == listed["core-fsdp", "fsdp"] == "ok"
    for name in ("dask", "deepspeed", "horovod", "modin"):
        assert listed[f"core-{name}", name] == "unavailable"
    assert str(checkout) in environment.run("python", "-c", "import core; print(core.__file__)")
