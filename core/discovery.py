"""Finding plugins: every entry point becomes one listed `Record` or more, whatever happens inside it.

pluggy's own `load_setuptools_entrypoints` is not used: there, one plugin that fails to import takes the command down,
and the second plugin of a name is skipped in silence. Here each plugin is checked in a manager of its own.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any, Literal

import attrs
import pluggy

import core
from core import builtin, hookspecs
from core.specs import LoaderOptions, LoaderSpec, ProcessorOptions, ProcessorSpec, Spec, StrategyOptions, StrategySpec

Kind = Literal["processor", "strategy", "loader"]
Status = Literal["ok", "unavailable", "incompatible", "conflict", "broken", "disabled"]

KINDS: dict[Kind, type[Spec]] = {"processor": ProcessorSpec, "strategy": StrategySpec, "loader": LoaderSpec}
_OPTIONS: dict[Kind, type] = {"processor": ProcessorOptions, "strategy": StrategyOptions, "loader": LoaderOptions}
OWN_PLUGINS: dict[str, Kind] = {
    "dask": "processor",
    "modin": "processor",
    "ddp": "strategy",
    "fsdp": "strategy",
    "deepspeed": "strategy",
    "horovod": "strategy",
}
"""The plugins developed beside core: `core[x]` brings the distribution `core-x` and the library it drives."""

DISABLE_VARIABLE = "CORE_DISABLE_PLUGINS"

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_NOT_NAMES = {"null", "true", "false"}  # YAML would not read them as text
_IMPLEMENTATION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@attrs.frozen(kw_only=True)
class Record:
    """One line of `core list-plugins`.

    Attributes:
        kind: None where the plugin did not get as far as saying what it provides; `name` is then the entry point's.
        status: ``ok``; ``unavailable``: something in `spec.needs` is missing; ``incompatible``: made for another
            core; ``conflict``: another distribution provides the same name; ``broken``; ``disabled`` by the user.
        reason: why it is not ok, one line.
        dist, version: the distribution it came with.
        entry_point: ``"name = module"``; empty for what is built in.
    """

    kind: Kind | None = None
    name: str
    status: Status
    reason: str = ""
    dist: str
    version: str
    entry_point: str = ""
    spec: Spec | None = attrs.field(default=None, repr=False)

    @property
    def summary(self) -> str:
        return self.spec.summary if self.spec else ""

    @property
    def qualified_name(self) -> str:
        """The name that stays unambiguous when another distribution provides it too."""
        return f"{self.dist}:{self.name}"


def discover() -> tuple[Record, ...]:
    """Everything built in, then everything that installed distributions declare."""
    own = Record(name="core", status="ok", dist="core", version=core.__version__)
    records = list(_records(builtin, own))
    owners: dict[int, str] = {}  # id of a plugin object -> the entry point that named it first
    for name in _plugin_distributions():
        dist = metadata.distribution(name)  # the first on sys.path, which is also the one that imports find
        for point in _entry_points(dist):
            records.extend(_load(point, dist, owners))
    return tuple(_settle(records))


def canonical(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(needs: Iterable[str]) -> list[str]:
    """Those modules that cannot be imported, found without importing any."""
    return [module for module in needs if not _importable(module)]


def remedy(record: Record, absent: list[str]) -> str:
    """How to get modules that a plugin needs; empty where neither it nor its metadata tells."""
    if record.spec and record.spec.remedy:
        return record.spec.remedy
    extra = canonical(record.dist).removeprefix("core-")
    if extra in OWN_PLUGINS and canonical(record.dist) != extra:
        return f"pip install 'core[{extra}]'"
    about = metadata.metadata(record.dist)
    if "runtime" in (about.get_all("Provides-Extra") or ()):
        return f"pip install '{record.dist}[runtime]'"
    wanted = {canonical(module.partition(".")[0]) for module in absent}
    lines = [line for line in about.get_all("Requires-Dist") or () if canonical(_requirement_name(line)) in wanted]
    return "pip install " + " ".join(f"'{line.partition(';')[0].strip()}'" for line in lines) if lines else ""


def _plugin_distributions() -> list[str]:
    """Canonical names, sorted. Reads the small file first: parsing every installed METADATA would take the time."""
    names = set()
    for dist in metadata.distributions():
        if hookspecs.ENTRY_POINT_GROUP in (dist.read_text("entry_points.txt") or "") and (
            name := dist.metadata["Name"]
        ):
            names.add(canonical(name))
    return sorted(names)


def _entry_points(dist: metadata.Distribution) -> Iterable[metadata.EntryPoint]:
    return dist.entry_points.select(group=hookspecs.ENTRY_POINT_GROUP)


def _load(point: metadata.EntryPoint, dist: metadata.Distribution, owners: dict[int, str]) -> Iterator[Record]:
    found = Record(
        name=point.name,
        status="ok",
        dist=dist.metadata["Name"],
        version=dist.version,
        entry_point=f"{point.name} = {point.value}",
    )
    disabled = {canonical(name.strip()) for name in os.environ.get(DISABLE_VARIABLE, "").split(",")}
    if disabled & {canonical(point.name), canonical(found.dist)}:
        yield attrs.evolve(found, status="disabled", reason=f"named in {DISABLE_VARIABLE}")
        return
    try:
        if clash := _unmet_core_requirement(dist):
            yield attrs.evolve(found, status="incompatible", reason=clash)
            return
        with contextlib.redirect_stdout(sys.stderr):  # stdout is the command's
            plugin = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything, SystemExit included
        yield attrs.evolve(found, status="broken", reason=_describe(error))
        return
    first = owners.setdefault(id(plugin), f"'{found.entry_point}' of {found.dist}")
    if first != f"'{found.entry_point}' of {found.dist}":
        yield attrs.evolve(found, status="broken", reason=f"the same plugin is already listed by {first}")
        return
    yield from _records(plugin, found)


def _records(plugin: Any, found: Record) -> Iterator[Record]:
    """What a plugin's hooks return, each hook and each spec judged apart from the others."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin)
        manager.check_pending()
    except Exception as error:
        yield attrs.evolve(found, status="broken", reason=_describe(error))
        return
    hooks = {kind: getattr(manager.hook, f"register_{kind}") for kind in KINDS}
    implemented = {kind: hook for kind, hook in hooks.items() if hook.get_hookimpls()}
    if not implemented:
        yield attrs.evolve(found, status="broken", reason=f"{found.entry_point} implements no hook of core")
    for kind, hook in implemented.items():
        failed = attrs.evolve(found, kind=kind, status="broken")
        try:
            with contextlib.redirect_stdout(sys.stderr):
                results = hook()
                specs = [spec for result in results for spec in result]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            yield attrs.evolve(failed, reason=f"register_{kind}: {_describe(error)}")
            continue
        if not specs:
            yield attrs.evolve(failed, reason=f"register_{kind} returned no {KINDS[kind].__name__}")
        for spec in specs:
            yield _judge(kind, spec, found)


def _judge(kind: Kind, spec: Any, found: Record) -> Record:
    if fault := _fault(kind, spec):
        return attrs.evolve(found, kind=kind, status="broken", reason=f"register_{kind}: {fault}")
    record = attrs.evolve(found, kind=kind, name=spec.name, spec=spec)
    if absent := missing(spec.needs):
        return attrs.evolve(record, status="unavailable", reason=explain(record, absent))
    return record


def explain(record: Record, absent: list[str]) -> str:
    """Why a plugin is unavailable, and the way out."""
    command = remedy(record, absent)
    return f"needs {', '.join(absent)}" + (f": {command}" if command else "")


def _fault(kind: Kind, spec: Any) -> str:
    """What is wrong with a spec, or an empty string."""
    expected = KINDS[kind]
    if not isinstance(spec, expected):
        return f"gave {spec!r:.80}, which is not a {expected.__name__}"
    base = _OPTIONS[kind]
    if not isinstance(spec.name, str) or not _NAME.fullmatch(spec.name) or spec.name in _NOT_NAMES:
        return f"name {spec.name!r} is not lower-case letters, digits, '_' and '-', or is a word YAML keeps for itself"
    if not isinstance(spec.summary, str) or not spec.summary.strip():
        return f"{spec.name!r} has no summary"
    if not isinstance(spec.implementation, str) or not _IMPLEMENTATION.fullmatch(spec.implementation):
        return f"implementation {spec.implementation!r} of {spec.name!r} is not 'package.module:Class'"
    if not (isinstance(spec.options, type) and issubclass(spec.options, base) and attrs.has(spec.options)):
        return f"options {spec.options!r} of {spec.name!r} is not an attrs class derived from {base.__name__}"
    if not isinstance(spec.needs, tuple) or not all(isinstance(module, str) and module for module in spec.needs):
        return f"needs {spec.needs!r} of {spec.name!r} is not a tuple of module names"
    if not isinstance(spec.remedy, str) or not spec.remedy.isprintable():
        return f"remedy {spec.remedy!r} of {spec.name!r} is not a line of text"
    return ""


def _settle(records: list[Record]) -> Iterator[Record]:
    """Mark names that several provide. Which came first depends on the alphabet, and a run must not."""
    provided = [record for record in records if record.spec]
    counts = Counter((record.kind, record.name, record.dist) for record in provided)
    for record in records:
        others = {r.dist for r in provided if (r.kind, r.name) == (record.kind, record.name)} - {record.dist}
        if record.spec and counts[record.kind, record.name, record.dist] > 1:
            reason = f"{record.dist} provides {record.kind} {record.name!r} more than once"
            yield attrs.evolve(record, status="broken", reason=reason, spec=None)
        elif record.spec and others and record.entry_point:
            rivals = ", ".join(sorted(others))
            reason = f"{record.kind} {record.name!r} is also provided by {rivals}: write {record.qualified_name!r}"
            yield attrs.evolve(record, status="conflict", reason=reason)
        else:  # core's own names stay core's: installing a plugin must not change what a config means
            yield record


def _unmet_core_requirement(dist: metadata.Distribution) -> str:
    """pip checks this when it installs the plugin; upgrading core alone can still break it."""
    lines = [line for line in dist.requires or () if canonical(_requirement_name(line)) == "core"]
    if not lines:
        return ""
    from packaging.requirements import Requirement

    for requirement in map(Requirement, lines):
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(core.__version__, prereleases=True):
            return f"requires core {requirement.specifier}, this is core {core.__version__}"
    return ""


def _requirement_name(line: str) -> str:
    match = re.match(r"[\w.-]+", line)
    return match[0] if match else ""


def _importable(module: str) -> bool:
    head, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(head)
    except ValueError:  # imported, but by something that left no spec
        return not rest
    for part in rest:  # `find_spec` of a dotted name would import its parents
        head = f"{head}.{part}"
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = importlib.machinery.PathFinder.find_spec(head, spec.submodule_search_locations)
    return spec is not None and spec.origin is not None  # a bare folder of that name is no library


def _describe(error: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(error)).split())
