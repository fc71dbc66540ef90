from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

STRATEGY = """
    from core import StrategySpec, hookimpl

    @hookimpl
    def register_strategy():
        yield StrategySpec(name="{name}", summary="Made for a test.", implementation="{module}:Thing", {more})

    class Thing: ...
"""


@attrs.frozen
class Environment:
    """A folder on sys.path that throw-away distributions are installed into."""

    site: Path

    def install(
        self,
        dist: str,
        modules: dict[str, str],
        *,
        version: str = "1.0",
        points: dict[str, str] | None = None,
        requires: Iterable[str] = (),
        extras: Iterable[str] = (),
        site: Path | None = None,
    ) -> None:
        """Modules and a dist-info, as an installer leaves them. One entry point a module unless `points` are given."""
        site = site or self.site
        info = site / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        for name, source in modules.items():
            (site / f"{name}.py").write_text(textwrap.dedent(source))
        lines = [f"{name} = {value}" for name, value in (points or {name: name for name in modules}).items()]
        (info / "entry_points.txt").write_text("\n".join(["[core.plugins]", *lines, ""]))
        metadata = ["Metadata-Version: 2.1", f"Name: {dist}", f"Version: {version}"]
        metadata += [f"Requires-Dist: {line}" for line in requires] + [f"Provides-Extra: {extra}" for extra in extras]
        (info / "METADATA").write_text("\n".join([*metadata, ""]))

    def strategy(self, dist: str, name: str, *, module: str = "", more: str = "", **settings: Any) -> None:
        """A distribution that provides one strategy."""
        module = module or dist.replace("-", "_")
        self.install(dist, {module: STRATEGY.format(name=name, module=module, more=more)}, **settings)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [variables.pop("PYTHONPATH", ""), str(self.site)]))
        return subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": path, **variables},
            cwd=self.site.parent,
            capture_output=True,
            text=True,
            check=False,
        )

    def records(self, dist: str, **variables: str) -> list[dict[str, Any]]:
        """What `core list-plugins --json` says of a distribution."""
        done = self.run("-m", "core", "list-plugins", "--json", **variables)
        assert done.returncode == 0, done.stderr
        return [record for record in json.loads(done.stdout)["plugins"] if record["distribution"] == dist]

    def record(self, dist: str, **variables: str) -> dict[str, Any]:
        (record,) = self.records(dist, **variables)
        return record

    def look_up(self, call: str, **variables: str) -> str:
        """What a lookup in the registry gives, or its error's text, in a process of its own."""
        code = f"""
            from core.errors import PluginError
            from core.registry import registry
            try:
                print(registry().{call})
            except PluginError as error:
                print(error)
        """
        done = self.run("-c", textwrap.dedent(code), **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    site = tmp_path / "site"
    site.mkdir()
    return Environment(site)
