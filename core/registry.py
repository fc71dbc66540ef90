"""Looking plugins up: from the word in a config to its spec, and from the spec to its class."""

from __future__ import annotations

import functools
import importlib
from importlib import metadata
from typing import Any

import attrs

from core.discovery import OWN_PLUGINS, Kind, Record, Status, discover, explain, missing
from core.errors import PluginError
from core.specs import Spec

__all__ = ["Kind", "Record", "Registry", "Status", "plugins", "registry"]


@attrs.frozen
class Registry:
    """The plugins of an environment.

    Plugins are named as in a config: ``ddp``, or ``core-ddp:ddp`` where two distributions provide the word.
    """

    records: tuple[Record, ...]

    @classmethod
    def load(cls) -> Registry:
        """Look at the environment as it is now. `registry` does it once."""
        return cls(discover())

    def choices(self, kind: Kind) -> dict[str, Spec]:
        """Every word a config may use, and its spec. A plugin that lacks a library counts: its options are known."""
        found = {}
        for record in self.records:
            if record.kind == kind and record.spec:
                found[record.qualified_name if record.status == "conflict" else record.name] = record.spec
        return dict(sorted(found.items()))

    def names(self, kind: Kind) -> list[str]:
        """The keys of `choices`."""
        return list(self.choices(kind))

    def spec(self, kind: Kind, name: str) -> Spec:
        """What is known of a plugin without importing it.

        Raises:
            PluginError: no plugin has the name, or several do.
        """
        spec = self._find(kind, name).spec
        assert spec is not None
        return spec

    def usable(self, kind: Kind, name: str) -> bool:
        """Whether there is such a plugin and the libraries it needs are installed."""
        return any(r.kind == kind and r.name == name and r.status == "ok" for r in self.records)

    def provider(self, kind: Kind, name: str) -> str:
        """The distribution that a plugin comes from, and its version.

        Raises:
            PluginError: as `spec`.
        """
        record = self._find(kind, name)
        return f"{record.dist} {record.version}"

    def implementation(self, kind: Kind, name: str) -> Any:
        """The plugin's class, imported.

        Raises:
            PluginError: as `spec`; or a library it needs is missing, or the import fails.
        """
        record = self._find(kind, name)
        spec = self.spec(kind, name)
        if absent := missing(spec.needs):
            reason = explain(record, absent)
            raise PluginError(f"{kind} {name!r} of {record.dist} {record.version} is unavailable", hint=reason)
        module, _, attribute = spec.implementation.partition(":")
        try:
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
        except Exception as error:
            raise PluginError(
                f"{kind} {name!r} of {record.dist} {record.version} cannot be imported",
                found=spec.implementation,
                hint=f"{type(error).__name__}: {error}",
            ) from error

    def _find(self, kind: Kind, name: str) -> Record:
        dist, _, bare = name.rpartition(":")
        found = [r for r in self.records if r.kind == kind and r.spec and r.name == bare and dist in ("", r.dist)]
        settled = [r for r in found if dist or r.status != "conflict"]
        if settled:
            return settled[0]
        if found:
            words = " or ".join(repr(r.qualified_name) for r in found)
            raise PluginError(f"several distributions provide {kind} {name!r}", hint=f"write {words}")
        raise PluginError(
            f"unknown {kind}",
            found=name,
            expected=_one_of(self.names(kind)),
            hint="\n    ".join(self._advice(kind, name)),
        )

    def _advice(self, kind: Kind, name: str) -> list[str]:
        import difflib

        advice = []
        ours = [word for word, of in OWN_PLUGINS.items() if of == kind]
        if name in ours:
            advice.append(_how_to_get(name))
        else:
            close = difflib.get_close_matches(name, {*self.names(kind), *ours}, n=1)
            advice += [f"did you mean {word!r}?" for word in close]
            if not close:
                custom = f"core-{name.replace('_', '-')}"
                advice.append(
                    f"nothing installed provides it: pip install the distribution that does, by custom {custom}"
                )
        for record in self.records:
            if record.spec is None and record.kind in (None, kind):
                advice.append(
                    f"{record.dist} {record.version} ({record.entry_point}) is {record.status}: {record.reason}"
                )
        return advice


@functools.cache
def registry() -> Registry:
    """The plugins of this process's environment, found once."""
    return Registry.load()


def plugins() -> tuple[Record, ...]:
    """What `core list-plugins` prints, in its order."""
    return tuple(sorted(registry().records, key=lambda record: (record.kind or "~", record.name, record.dist)))


def _one_of(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1] if names else ""]))


def _how_to_get(name: str) -> str:
    try:
        version = metadata.version(f"core-{name}")
    except metadata.PackageNotFoundError:
        return f"pip install 'core[{name}]'"
    return f"core-{name} {version} is installed and does not provide it"
