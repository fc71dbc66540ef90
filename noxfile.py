"""nox            lint, types and tests, each in an environment of its own
nox -s horovod    compile Horovod, which takes minutes the first time, and test its plugin
nox -s packaging  build every distribution and install them from a folder and from the checkout
nox -s alone      each plugin's tests beside core and nothing else
nox -s docs       the documentation, into build/site
nox -s bench      the benchmarks
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "tests"]

# Plugins that do their job; the others are distributions without an entry point.
PLUGINS = sorted(
    path.parent.name
    for path in Path(__file__).parent.glob("plugins/*/pyproject.toml")
    if "[project.entry-points" in path.read_text()
)

# Its wheels are kept in the user's cache folder. -O1 compiles in a third of the time.
BUILD_HOROVOD = ("python", "-m", "core_horovod.build")


@nox.session
def lint(session: nox.Session) -> None:
    """Style, in seconds."""
    session.install("ruff>=0.12")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict."""
    session.install("-r", "requirements-dev.txt")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Core and its plugins, from one editable environment."""
    session.install("-r", "requirements-dev.txt")
    session.run(*BUILD_HOROVOD, "-O1")
    session.run("pytest", "-m", "not packaging", *session.posargs)


@nox.session
def horovod(session: nox.Session) -> None:
    """Horovod, compiled for this torch, and the tests of its plugin."""
    session.install("-r", "requirements-dev.txt")
    session.run(*BUILD_HOROVOD, "-O1")
    session.run("pytest", "plugins/horovod", *session.posargs)


@nox.session
def packaging(session: nox.Session) -> None:
    """Wheels and checkout, each in a fresh environment."""
    session.install("-r", "requirements-dev.txt")
    session.run("pytest", "-m", "packaging", "tests/packaging", *session.posargs)


@nox.session
@nox.parametrize("plugin", PLUGINS)
def alone(session: nox.Session, plugin: str) -> None:
    """One plugin beside core: catches what it imports and does not declare."""
    session.install("-c", "constraints.txt", "-e", ".", "-e", f"plugins/{plugin}", "pytest>=8.3")
    if plugin == "horovod":
        session.run(*BUILD_HOROVOD, "-O1")
    session.run("pytest", f"plugins/{plugin}", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site; a link that leads nowhere fails."""
    session.install("-r", "requirements-dev.txt")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Speed and memory against hand-written loops; one row of results a benchmark."""
    session.install("-r", "requirements-dev.txt")
    session.run(*BUILD_HOROVOD)
    session.run("python", "-m", "benchmarks", *session.posargs)
