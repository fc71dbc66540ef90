"""Every block of code in the documentation does what it is there for.

YAML is read as a config, or as sections of one. Python is run, page by page. Of shell commands, `core` is run where all
that it names exists; where a word in capitals stands for something of the reader's, or a cluster or a store is needed,
its command line is checked. Other programs are run, or are on a short list, with the reason.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import yaml

from core.cli import COMMANDS, _Parser, main
from core.config import loads
from core.config.sections import Config

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])

NOT_RUN = {
    "python3": "makes an environment and installs into it, which tests/packaging and CI do",
    "pip": "installs",
    ".": "changes the reader's shell",
    "pytest": "runs all tests, of which this is one",
    ".venv/bin/python": "gets data, as other blocks do",
    "torchrun": "starts workers: tests/api/test_launcher.py does",
    "deepspeed": "starts workers: plugins/deepspeed/tests/test_launchers.py does",
    "horovodrun": "starts workers: plugins/horovod/tests does",
    "python -m core_horovod.build": "compiles for minutes: plugins/horovod/tests/test_build.py does",
}
BASE = {
    "input_features": [{"name": "x", "type": "number"}],
    "output_features": [{"name": "y", "type": "number"}],
}


@attrs.frozen
class Block:
    language: str
    info: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page; a fence that is not closed fails."""
    lines = iter(page.read_text().splitlines())
    for line in lines:
        if fence := re.match(r" *```(.*)", line):
            words = fence[1].split(maxsplit=1)
            inside = []
            for inner in lines:
                if inner.strip() == "```":
                    break
                inside.append(inner)
            else:
                raise AssertionError(f"{page.name}: a block that starts with {line!r} does not end")
            yield Block(words[0] if words else "", words[1] if len(words) > 1 else "", "\n".join(inside))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Where a reader would stand: in a checkout, with nothing written yet."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("CACHE_KEY", "CACHE_SECRET"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_do_what_they_are_there_for(page, here, capsys):
    namespace: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "yaml":
            read_yaml(block.text)
            if title := re.search(r'title="(.*?)"', block.info):
                (here / title[1]).write_text(block.text)
        elif block.language == "python":
            if page.name == "README.md":
                as_readme_has_it(here)
            exec(compile(block.text, str(page), "exec"), namespace)
        elif block.language == "sh":
            for command in commands(block.text):
                shell(command)
        elif block.language == "console":
            console(block.text, here, capsys)
        else:
            raise AssertionError(f"{page.name}: nobody knows what to do with a block of {block.language!r}")


def as_readme_has_it(here: Path) -> None:
    """The table and the config that README speaks of, trained for an epoch."""
    shell("python examples/get_data.py titanic")
    (here / "titanic.yaml").write_text(config_of_readme().replace("epochs: 20", "epochs: 1"))


def config_of_readme() -> str:
    return next(block.text for block in blocks(ROOT / "README.md") if block.language == "yaml")


def read_yaml(text: str) -> None:
    values = yaml.safe_load(text)
    unknown = set(values) - {field.name for field in attrs.fields(Config)}
    assert not unknown, f"{unknown} are no sections of a config"
    if "input_features" in values:
        loads(text)
    else:
        loads(yaml.safe_dump({**copy.deepcopy(BASE), **values}))


def commands(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        yield from re.split(r" && ", line) if line.startswith("python3 ") else [line]


def shell(line: str) -> None:
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0].endswith("/core") or words[0] == "core":
        core_command(words[1:])
    elif line.startswith("python examples/"):
        subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
    else:
        reason = next(
            (r for known, r in NOT_RUN.items() if line.startswith(known) or words[0].endswith(f"/{known}")), ""
        )
        assert reason or words[0].endswith(("bin/pytest", "bin/python")), f"nothing is known of {line!r}"
        if "core" in words and words[words.index("core") - 1] in ("-m", "--module"):
            parsed(words[words.index("core") + 1 :])


def core_command(words: list[str]) -> None:
    """Run it, or check its words where it cannot be run."""
    placeholder = any(re.search(r"(?<![\w$])[A-Z]{3,}(?!\w)", word) for word in words)
    elsewhere = any("s3://" in word or word == "ray" for word in words)
    missing = any(word.startswith("examples/") and not Path(word).exists() for word in words)
    assert not missing, words
    if placeholder or elsewhere or not all_there(words):
        parsed(words)
    else:
        assert main([*words, "--quiet"] if "list-plugins" not in words else words) == 0


def all_there(words: list[str]) -> bool:
    return all(Path(value).exists() for name, value in itertools.pairwise(words) if name in ("--config", "--dataset"))


def parsed(words: list[str]) -> None:
    name, *rest = words
    assert name in COMMANDS, f"core {name}"
    command = importlib.import_module(f"core.cli.{name.replace('-', '_')}")
    parser = _Parser(prog=f"core {name}")
    command.add_arguments(parser)
    parser.refuse_unknown(rest)
    parser.parse_intermixed_args(rest)


def console(text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command and what it says of a config with two mistakes, which README shows."""
    command, *shown = text.splitlines()
    assert command.startswith("$ core ")
    path = here / "titanic.yaml"
    mistaken = config_of_readme().replace("preprocessing", "preprocesing").replace("epochs: 20", "epochs: '20'")
    path.write_text(mistaken)
    main(shlex.split(command[2:])[1:])
    assert capsys.readouterr().err.splitlines() == shown


def test_there_is_something_to_run():
    kinds = [block.language for page in PAGES for block in blocks(page)]
    assert kinds.count("yaml") > 15
    assert kinds.count("sh") > 10
    assert kinds.count("python") >= 4
