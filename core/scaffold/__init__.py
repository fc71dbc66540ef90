"""A new plugin, as a package that works: made of templates, one folder for each kind and one for what all share."""

from __future__ import annotations

import re
import string
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import attrs

from core.discovery import OWN_PLUGINS, Kind
from core.errors import UserError
from core.registry import registry

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_SUFFIX = ".in"


@attrs.frozen
class Names:
    """What a plugin is called where.

    Attributes:
        word: in a config.
    """

    word: str

    @classmethod
    def of(cls, kind: Kind, name: str) -> Names:
        """Those of a plugin that nobody has yet.

        Raises:
            UserError: the name is none, or is taken.
        """
        if not _NAME.fullmatch(name):
            raise UserError(
                "is no name for a plugin",
                path="NAME",
                found=name,
                expected="lower-case letters, digits, and - or _ between them, such as local-sgd",
            )
        word = name.replace("-", "_")
        for record in registry().records:
            if (record.kind, record.name) == (kind, word):
                raise UserError(f"{record.dist} {record.version} has a {kind} of this name", path="NAME", found=name)
        if word in OWN_PLUGINS:
            raise UserError(f"core-{word} is a distribution of core's own", path="NAME", found=name)
        return cls(word)

    @property
    def module(self) -> str:
        return f"core_{self.word}"

    @property
    def distribution(self) -> str:
        return self.module.replace("_", "-")

    @property
    def classname(self) -> str:
        return "".join(part.capitalize() for part in self.word.split("_"))


def make(kind: Kind, name: str, directory: Path) -> Path:
    """Write a new package into `directory`; returns its folder.

    Raises:
        UserError: the name is none or taken, or the folder exists.
    """
    names = Names.of(kind, name)
    folder = directory / names.distribution
    if folder.exists():
        raise UserError(
            "exists already", path=str(folder), hint="Choose another name, or another place with --directory."
        )
    values = {
        "word": names.word,
        "module": names.module,
        "distribution": names.distribution,
        "classname": names.classname,
        "kind": kind,
        "where": "backend.trainer.strategy" if kind == "strategy" else f"backend.{kind}",
    }
    templates = resources.files("core.scaffold") / "templates"
    for place in ("any", kind):
        _render(templates / place, folder, values)
    return folder


def _render(template: Traversable, target: Path, values: dict[str, str]) -> None:
    for entry in template.iterdir():
        path = target / string.Template(entry.name).substitute(values)
        if entry.is_dir():
            _render(entry, path, values)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name.removesuffix(_SUFFIX)).write_text(
            string.Template(entry.read_text("utf-8")).substitute(values), "utf-8"
        )
