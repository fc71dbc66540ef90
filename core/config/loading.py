"""From a file, text or mapping to a checked `Config`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import attrs

from core.config import checks
from core.config.defaults import with_defaults
from core.config.environment import expand
from core.config.merge import NoSuchPlaceError, assign, merge
from core.config.sections import Config, Preprocessing, Trainer
from core.config.structure import structure
from core.config.yaml import Document, Path, Place, parse, unplaced
from core.errors import ConfigError, Problem
from core.storage import Location, is_url

_BACKEND_OPTION = "--backend"
_FILE_SUFFIXES = (".yaml", ".yml", ".json")

Found = list[tuple[Path, Problem]]


def load(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    backend: str | Mapping[str, Any] | None = None,
) -> Config:
    """Read, complete and check a config.

    Args:
        source: path of a YAML or JSON file, the mapping it would hold, or YAML text (of more than one line).
        overrides: ``"trainer.epochs=3"``, values in YAML; an item of a list goes by its `name` or its number.
        backend: laid over the config's `backend` key by key: a type, a mapping, YAML text of one, or a file.

    Raises:
        ConfigError: with every problem found, in the order of the file.
    """
    if isinstance(source, Mapping):
        return _load(Document(source, {}), overrides, backend)
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return loads(source, overrides=overrides, backend=backend)
    return _load(_read(source), overrides, backend)


def loads(
    text: str,
    *,
    name: str = "config",
    overrides: Sequence[str] = (),
    backend: str | Mapping[str, Any] | None = None,
) -> Config:
    """As `load`, of YAML text; `name` stands where errors would name the file."""
    return _load(parse(text, name), overrides, backend)


def _load(document: Document, overrides: Sequence[str], backend: str | Mapping[str, Any] | None) -> Config:
    data, places = document.data, dict(document.places)
    if not isinstance(data, Mapping):
        message = "the config is empty" if data is None else "is no config"
        top = places.get(())
        raise ConfigError(message, path=str(top) if top else "", expected="a mapping with `input_features` and more")
    if backend is not None:
        data = _with_backend(data, _backend_document(backend), places)
    misplaced: Found = []
    for number, override in enumerate(overrides):
        data = _with_override(data, override, places, 2 + number, misplaced)
    data, unset = expand(data, os.environ)
    complete = with_defaults(data)
    config, wrong = structure(complete, Config)
    problems = _without_followers(misplaced + unset, wrong) + list(_cross_problems(complete, config))
    if problems:
        raise ConfigError(_located(problems, places, complete))
    assert config is not None
    return config


def _read(source: str | os.PathLike[str], order: int = 0) -> Document:
    path = FilePath(source).expanduser()
    try:
        content = Location(os.fspath(source)).read_bytes() if is_url(os.fspath(source)) else path.read_bytes()
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("there is no such file", path=str(path)) from None
    except IsADirectoryError:
        raise ConfigError("is a folder", path=str(path), expected="a YAML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text: byte {error.start} is not", path=str(path)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {getattr(error, 'strerror', None) or error}", path=str(path)) from None
    return parse(text, str(path), order)


def _backend_document(backend: str | Mapping[str, Any]) -> Document:
    if isinstance(backend, Mapping):
        return unplaced(backend, "backend", 1)
    if re.fullmatch(r"[\w-]+", backend):
        return unplaced({"type": backend}, _BACKEND_OPTION, 1)
    is_file = backend.endswith(_FILE_SUFFIXES) or (os.path.exists(backend) and "\n" not in backend)
    document = _read(backend, 1) if is_file else parse(backend, _BACKEND_OPTION, 1)
    if isinstance(document.data, Mapping) and set(document.data) == {"backend"}:
        below = {path[1:]: place for path, place in document.places.items() if path}
        return Document(document.data["backend"], below)
    if not isinstance(document.data, Mapping):
        expected = "a type such as local or ray, a mapping, or a .yaml or .json file"
        raise ConfigError("is no backend", path=_BACKEND_OPTION, found=backend, expected=expected)
    return document


def _with_backend(data: Mapping[str, Any], backend: Document, places: dict[Path, Place]) -> Mapping[str, Any]:
    for path, place in backend.places.items():
        if path or ("backend",) not in places:
            places["backend", *path] = place
    below = backend.data if isinstance(backend.data, Mapping) else {"type": backend.data}
    if data.get("backend") is None:
        return {**data, "backend": below}
    merged: Mapping[str, Any] = merge(data, {"backend": below}, Config)
    return merged


def _with_override(
    data: Mapping[str, Any], override: str, places: dict[Path, Place], order: int, misplaced: Found
) -> Mapping[str, Any]:
    """`data` with one `--set` applied; where it cannot be, `misplaced` gets the reason."""
    key, equals, text = override.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise ConfigError("cannot be understood", path=f"--set {override}", expected="--set section.key=value")
    source = f"--set {key.strip()}"  # without the value, which may be a password
    place = Place(order, 0, 0, source)
    changed: Mapping[str, Any]
    try:
        changed, path = assign(data, steps, parse(text, source).data, Config)
    except NoSuchPlaceError as error:
        places[error.path] = place
        misplaced.append((error.path, error.problem))
        return data
    for known in [known for known in places if known[: len(path)] == path]:
        del places[known]
    for length in range(1, len(path)):
        places.setdefault(path[:length], place)
    places[path] = place
    return changed


def _cross_problems(data: Mapping[str, Any], config: Config | None) -> Iterable[tuple[Path, Problem]]:
    """The checks between keys, as far as the keys themselves can be read."""
    yield from checks.feature_problems(data)
    preprocessing = structure(data.get("preprocessing", {}), Preprocessing)[0]
    trainer = structure(data.get("trainer", {}), Trainer)[0]
    if preprocessing is not None:
        yield from checks.preprocessing_problems(preprocessing)
    if trainer is not None:
        yield from checks.trainer_problems(trainer)
    if config is not None:
        yield from checks.metric_problems(config.trainer, config.output_features)


def _without_followers(causes: Found, wrong: Found) -> Found:
    """A value that could not be made is reported once, not again for what stands in its place."""
    known = {path for path, _ in causes}
    return causes + [(path, problem) for path, problem in wrong if path not in known]


def _located(problems: Found, places: Mapping[Path, Place], data: Any) -> list[Problem]:
    """Sorted by place, each path led by the file, line and column it stands at, where there is a file."""
    located = []
    for number, (path, problem) in enumerate(problems):
        nearest = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in places), None)
        place = places[nearest] if nearest is not None else None
        dotted = _dotted(path, data)
        where = ": ".join(filter(None, (str(place or ""), dotted)))
        located.append((place or Place(0, 0, 0, ""), number, attrs.evolve(problem, path=where)))
    return [problem for *_, problem in sorted(located, key=lambda item: item[:2])]


def _dotted(path: Path, data: Any) -> str:
    """The path as `--set` takes it."""
    words = []
    for step in path:
        words.append(_own_name(data, step) if isinstance(step, int) else step)
        try:
            data = data[step]
        except (LookupError, TypeError):
            data = None
    return ".".join(words)


def _own_name(items: Sequence[Any], index: int) -> str:
    """The `name` of an item where it has one of its own that fits into a path, else its number."""
    names = [item.get("name") if isinstance(item, Mapping) else None for item in items]
    name = names[index]
    if isinstance(name, str) and name.strip() and name.isprintable() and "." not in name and names.count(name) == 1:
        return name
    return str(index)
