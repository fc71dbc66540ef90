from __future__ import annotations

import json

import core

OPTIONS = """
    from __future__ import annotations
    import attrs
    from core import StrategyOptions, StrategySpec, hookimpl

    @attrs.frozen(kw_only=True)
    class Options(StrategyOptions):
        speed: int = attrs.field(metadata={"doc": "How fast."})
        names: list[str] = attrs.field(factory=lambda: ["a"])

    @hookimpl
    def register_strategy():
        yield StrategySpec(name="fast", summary="s", implementation="acme:Thing", options=Options)
"""
HEAVY = {"torch", "ray", "dask", "pandas", "pyarrow", "numpy"}


def test_imports_nothing_heavy(environment):
    code = """
import json, sys
from core.cli import main
main(["list-plugins"])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
    done = environment.run("-c", code)

    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(json.loads(done.stderr))


def test_starts_in_under_300_ms(environment, start_up_seconds):
    def run():
        assert environment.run("-m", "core", "list-plugins").returncode == 0

    assert start_up_seconds(run) < 0.3


def test_json_is_one_object_of_known_keys(environment):
    done = environment.run("-m", "core", "list-plugins", "--json")

    listing = json.loads(done.stdout)
    assert set(listing) == {"schema", "plugins"}
    assert listing["schema"] == 1
    keys = {"kind", "name", "status", "reason", "summary", "distribution", "version", "entry_point"}
    for plugin in listing["plugins"]:
        assert set(plugin) == keys | {"implementation", "needs", "options"}
    assert [(p["kind"], p["name"]) for p in listing["plugins"] if p["distribution"] == "core"] == [
        ("loader", "memory"),
        ("loader", "ray"),
        ("processor", "pandas"),
        ("strategy", "single"),
    ]


def test_python_api_gives_the_same_records():
    listed = core.plugins()

    assert ("processor", "pandas", "ok") in {(record.kind, record.name, record.status) for record in listed}
    assert {record.dist for record in listed} >= {"core"}


def test_options_are_described(environment):
    environment.install("acme", {"acme": OPTIONS})

    assert environment.record("acme")["options"] == [
        {"name": "speed", "type": "int", "required": True, "default": None, "doc": "How fast."},
        {"name": "names", "type": "list[str]", "required": False, "default": ["a"], "doc": ""},
    ]


def test_table_shows_each_plugin_with_status_and_reason(environment):
    environment.install("acme", {"acme": "raise RuntimeError('no luck')"})

    lines = environment.run("-m", "core", "list-plugins").stdout.splitlines()

    assert lines[0].split() == ["KIND", "NAME", "STATUS", "DISTRIBUTION"]
    assert any(line.split()[:5] == ["processor", "pandas", "ok", "core", "0.1.0"] for line in lines)
    assert any(line.startswith("-") and "broken" in line and "RuntimeError: no luck" in line for line in lines)


def test_verbose_shows_entry_point_implementation_needs_and_options(environment):
    environment.install("acme", {"acme": OPTIONS.replace("options=Options", "options=Options, needs=('absent',)")})

    text = environment.run("-m", "core", "list-plugins", "--verbose").stdout

    assert "strategy fast: unavailable (needs absent)" in text
    assert "  entry point: acme = acme\n  implementation: acme:Thing\n  needs: absent\n" in text
    assert "  option speed: int, required. How fast.\n" in text
    assert '  option names: list[str], default ["a"].\n' in text
