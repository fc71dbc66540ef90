"""YAML text to plain data that remembers where each value stood.

Scalars follow YAML 1.2: `1e-3` is a number, `on` and `2024-01-01` are text. A repeated key is an error, never the last
one wins. Anchors, aliases and merge keys (`<<`) work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs
import yaml

from core.errors import ConfigError, Problem

Path = tuple[str | int, ...]

# An alias costs a few characters and may stand for a whole tree, so text of a kilobyte can unfold to gigabytes.
MOST_VALUES = 100_000

_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[str, str]] = {
    "null": (r"(?:~|null|Null|NULL|)", "~nN\0"),
    "bool": (r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    "int": (r"(?:[-+]?[0-9]{1,300}|0o[0-7]{1,99}|0x[0-9a-fA-F]{1,99})", "-+0123456789"),
    "float": (
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        "-+.0123456789",
    ),
    "merge": (r"<<", "<"),
}


@attrs.frozen(order=True)
class Place:
    """Where a value was written. Sorting puts the file before what was merged over it."""

    order: int
    line: int
    column: int
    source: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@attrs.frozen
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and the place of every path in it."""

    data: Any
    places: dict[Path, Place]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^{_pattern}$"), ["" if c == "\0" else c for c in _first])


def parse(text: str, source: str, order: int = 0) -> Document:
    """Read one document; an empty one is null.

    Raises:
        ConfigError: the text is not YAML, holds a key twice, or unfolds without end. Every repeated key is named.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        reader = _Reader(source, order)
        data = reader.read(node, ()) if node else None
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_problem(error, source)]) from None
    except RecursionError:
        raise ConfigError("nested too deep to read", path=source) from None
    finally:
        loader.dispose()
    if reader.problems:
        raise ConfigError(reader.problems)
    return Document(data, {(): Place(order, 0, 0, source)} | reader.places)


def unplaced(data: Any, source: str, order: int = 0) -> Document:
    """A document of data that was never text: every value in it comes from `source`."""
    place = Place(order, 0, 0, source)
    return Document(data, dict.fromkeys(_paths(data, ()), place))


def _paths(data: Any, path: Path) -> Iterator[Path]:
    yield path
    items = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, (list, tuple)) else ()
    for step, value in items:
        yield from _paths(value, (*path, step))


def scalar(text: str) -> Any:
    """What `text` means as a plain YAML scalar."""
    for kind, (pattern, _) in _SCALARS.items():
        if re.fullmatch(pattern, text):
            return _construct(kind, text)
    return text


def _construct(kind: str, text: str) -> Any:
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        case "float":
            return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))
        case _:
            return text


def _syntax_problem(error: yaml.YAMLError, source: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    context = getattr(error, "context", None)
    return Problem(message=f"not readable as YAML: {reason}", path=where, hint=context or "")


class _Reader:
    """Walks composed nodes: PyYAML's own constructor would lose the places and let repeated keys pass."""

    def __init__(self, source: str, order: int) -> None:
        self.source = source
        self.order = order
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self.count = 0
        self.open: set[int] = set()

    def place(self, node: yaml.Node) -> Place:
        return Place(self.order, node.start_mark.line + 1, node.start_mark.column + 1, self.source)

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if self.count > MOST_VALUES:
            raise self.refusal(node, f"holds more than {MOST_VALUES:,} values once its aliases are unfolded")
        self.places.setdefault(path, self.place(node))
        if isinstance(node, yaml.ScalarNode):
            return self.read_scalar(node)
        if id(node) in self.open:
            raise self.refusal(node, "an alias stands inside the value it refers to")
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            raise self.refusal(node, f"unknown tag {_shown(node.tag)}")
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            return self.read_mapping(node, path)
        finally:
            self.open.discard(id(node))

    def read_scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind in ("str", "merge"):
            return node.value
        if kind not in _SCALARS:
            raise self.refusal(node, f"unknown tag {_shown(node.tag)}")
        if not re.fullmatch(_SCALARS[kind][0], node.value):
            raise self.refusal(node, f"{node.value!r} does not fit its tag !!{kind}")
        return _construct(kind, node.value)

    def read_mapping(self, node: yaml.MappingNode, path: Path) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.refusal(key_node, "a key must be a single word or number")
            # Keys are names; `0: a` and `"0": a` mean the same feature, class or resource.
            key = key_node.value
            place = self.place(key_node)
            if key in result:
                dotted = ".".join(map(str, (*path, key)))
                first = self.places[*path, key]
                self.problems.append(
                    Problem(
                        message="the key is given twice",
                        path=f"{place}: {dotted}",
                        hint=f"the other one is in line {first.line}",
                    )
                )
                continue
            self.places.setdefault((*path, key), place)
            result[key] = self.read(value_node, (*path, key))
        for merged in _merge_sources(node):
            if not isinstance(merged, yaml.MappingNode):
                raise self.refusal(merged, "`<<` merges mappings, and this is none")
            for key, value in self.read(merged, path).items():
                result.setdefault(key, value)
        return result

    def refusal(self, node: yaml.Node, reason: str) -> ConfigError:
        return ConfigError(f"not readable as YAML: {reason}", path=str(self.place(node)))


def _merge_sources(node: yaml.MappingNode) -> Iterator[yaml.Node]:
    for key, value in node.value:
        if key.tag == _TAG + "merge":
            yield from value.value if isinstance(value, yaml.SequenceNode) else (value,)


def _shown(tag: str) -> str:
    return tag.replace(_TAG, "!!")
