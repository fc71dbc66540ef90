from __future__ import annotations

import pytest

HOOK = "from core import StrategySpec, LoaderSpec, hookimpl\n@hookimpl\n"


def test_plugin_is_ok(environment):
    environment.strategy("acme-fast", "fast", requires=["core>=0.1"])

    record = environment.record("acme-fast")

    assert record == {
        "kind": "strategy",
        "name": "fast",
        "status": "ok",
        "reason": "",
        "summary": "Made for a test.",
        "distribution": "acme-fast",
        "version": "1.0",
        "entry_point": "acme_fast = acme_fast",
        "implementation": "acme_fast:Thing",
        "needs": [],
        "options": [],
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Odd(BaseException): ...\nraise Odd('two\\nlines')", "acme.Odd: two lines"),
        ("def f(:", "SyntaxError"),
        ("", "implements no hook"),
        (HOOK + "def register_nothing(): ...", "unknown hook 'register_nothing'"),
        (HOOK + "def register_strategy(colour): ...", "colour"),
        (HOOK + "def register_strategy(): raise RuntimeError('no')", "register_strategy: RuntimeError: no"),
        (HOOK + "def register_strategy(): exit(1)", "register_strategy: SystemExit: 1"),
        (HOOK + "def register_strategy(): return 5", "'int' object is not iterable"),
        (HOOK + "def register_strategy(): return None", "returned no StrategySpec"),
        (HOOK + "def register_strategy(): return []", "returned no StrategySpec"),
        (HOOK + "def register_strategy(): return ['ddp']", "'ddp', which is not a StrategySpec"),
        (
            HOOK + "def register_strategy(): yield LoaderSpec(name='a', summary='b', implementation='c:D')",
            "is not a StrategySpec",
        ),
        (HOOK + "def register_strategy(): yield StrategySpec(name='a')", "TypeError"),
    ],
)
def test_broken_plugin_is_listed_with_its_reason(environment, source, reason):
    environment.install("acme", {"acme": source})

    record = environment.record("acme")

    assert (record["status"], record["name"]) == ("broken", "acme")
    assert reason in record["reason"]
    assert "\n" not in record["reason"]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("name='Fast'", "name 'Fast'"),
        ("name='two words'", "name 'two words'"),
        ("name='null'", "name 'null'"),
        ("name='acme:fast'", "name 'acme:fast'"),
        ("name=3", "name 3"),
        ("summary=''", "no summary"),
        ("implementation='acme.Thing'", "'package.module:Class'"),
        ("implementation='acme:'", "'package.module:Class'"),
        ("implementation=print", "'package.module:Class'"),
        ("options=dict", "not an attrs class derived from StrategyOptions"),
        ("options=None", "not an attrs class derived from StrategyOptions"),
        ("options=LoaderOptions", "not an attrs class derived from StrategyOptions"),
        ("needs='torch'", "not a tuple of module names"),
        ("remedy=1", "is not a line of text"),
    ],
)
def test_wrong_spec_is_broken(environment, field, reason):
    source = f"""
        from core import LoaderOptions, StrategySpec, hookimpl
        @hookimpl
        def register_strategy():
            fields = dict(name="fast", summary="s", implementation="acme:Thing") | dict({field})
            yield StrategySpec(**fields)
    """
    environment.install("acme", {"acme": source})

    record = environment.record("acme")

    assert record["status"] == "broken"
    assert reason in record["reason"]


def test_broken_hook_leaves_the_plugin_s_other_hooks(environment):
    source = """
        from core import LoaderSpec, StrategySpec, hookimpl
        @hookimpl
        def register_strategy():
            raise ValueError
        @hookimpl
        def register_loader():
            yield LoaderSpec(name="good", summary="s", implementation="acme:Thing")
            yield LoaderSpec(name="BAD", summary="s", implementation="acme:Thing")
    """
    environment.install("acme", {"acme": source})

    found = {(record["kind"], record["name"], record["status"]) for record in environment.records("acme")}

    assert found == {("strategy", "acme", "broken"), ("loader", "good", "ok"), ("loader", "acme", "broken")}


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"dist": "core-dask"}, "pip install 'core[dask]'"),
        ({"dist": "acme", "extras": ["runtime"]}, "pip install 'acme[runtime]'"),
        ({"dist": "acme", "requires": ["Absent_Lib.core>=2 ; extra == 'x'"]}, ""),
        ({"dist": "acme", "requires": ["absent-lib>=2 ; extra == 'x'"]}, "pip install 'absent-lib>=2'"),
        ({"dist": "acme"}, ""),
    ],
)
def test_missing_need_makes_it_unavailable(environment, settings, hint):
    environment.strategy(name="fast", more="needs=('json', 'absent_lib.sub')", **settings)

    record = environment.record(settings["dist"])

    assert record["status"] == "unavailable"
    assert record["reason"] == "needs absent_lib.sub" + (f": {hint}" if hint else "")


def test_needs_are_looked_for_without_importing_them(environment):
    (environment.site / "heavy").mkdir()
    (environment.site / "heavy" / "__init__.py").write_text("raise SystemExit('imported')")
    (environment.site / "heavy" / "part.py").write_text("")
    environment.strategy("acme", "fast", more="needs=('heavy.part', 'heavy')")

    assert environment.record("acme")["status"] == "ok"


def test_folder_without_code_is_no_library(environment):
    (
        environment.site.parent / "deepspeed_folder"
    ).mkdir()  # in the working directory, which `python -m` puts on the path
    environment.strategy("acme", "fast", more="needs=('deepspeed_folder',)")

    assert environment.record("acme")["status"] == "unavailable"


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        ("core>=0.1,<0.2", "ok"),
        ("core[ray]<9", "ok"),
        ("core>=7 ; extra == 'new'", "ok"),
        ("core-tools>=7", "ok"),
        ("core>=7", "incompatible"),
        ("Core (<0.1)", "incompatible"),
    ],
)
def test_own_metadata_decides_compatibility(environment, requirement, status):
    environment.strategy("acme", "fast", requires=["attrs", requirement])

    record = environment.record("acme")

    assert record["status"] == status
    if status == "incompatible":
        assert "this is core 0." in record["reason"]


def test_incompatible_plugin_is_not_imported(environment):
    environment.install("acme", {"acme": "raise SystemExit('imported')"}, requires=["core>=7"])

    assert environment.record("acme")["status"] == "incompatible"


@pytest.mark.parametrize("word", ["acme_point", "Acme.Fast", "other, acme-fast"])
def test_disabled_by_entry_point_or_distribution(environment, word):
    environment.install("acme-fast", {"acme": "raise SystemExit('imported')"}, points={"acme_point": "acme"})

    record = environment.record("acme-fast", CORE_DISABLE_PLUGINS=word)

    assert (record["kind"], record["name"], record["status"]) == (None, "acme_point", "disabled")


def test_two_distributions_of_one_name_are_both_in_conflict(environment):
    environment.strategy("acme", "fast")
    environment.strategy("zeta", "fast")

    for dist, other in [("acme", "zeta"), ("zeta", "acme")]:
        record = environment.record(dist)
        assert record["status"] == "conflict"
        assert record["reason"] == f"strategy 'fast' is also provided by {other}: write '{dist}:fast'"
    assert "several distributions provide strategy 'fast'" in environment.look_up("spec('strategy', 'fast')")
    assert "write 'acme:fast' or 'zeta:fast'" in environment.look_up("spec('strategy', 'fast')")
    assert "implementation='zeta:Thing'" in environment.look_up("spec('strategy', 'zeta:fast')")
    assert environment.look_up("implementation('strategy', 'acme:fast')") == "<class 'acme.Thing'>\n"
    assert "'zeta:fast'" in environment.look_up("names('strategy')")


def test_disabling_one_side_ends_a_conflict(environment):
    environment.strategy("acme", "fast")
    environment.strategy("zeta", "fast")

    assert environment.record("zeta", CORE_DISABLE_PLUGINS="acme")["status"] == "ok"


def test_plugin_cannot_take_a_built_in_name(environment):
    environment.strategy("acme", "single")

    assert environment.record("acme")["status"] == "conflict"
    assert "also provided by core" in environment.record("acme")["reason"]
    assert "implementation='core.strategy:Strategy'" in environment.look_up("spec('strategy', 'single')")
    assert "implementation='acme:Thing'" in environment.look_up("spec('strategy', 'acme:single')")


def test_one_name_twice_in_one_distribution_is_broken(environment):
    source = """
        from core import StrategySpec, hookimpl
        @hookimpl
        def register_strategy():
            return [StrategySpec(name="fast", summary="s", implementation="acme:Thing")] * 2
    """
    environment.install("acme", {"acme": source})

    records = environment.records("acme")

    assert [record["status"] for record in records] == ["broken", "broken"]
    assert "more than once" in records[0]["reason"]


def test_one_module_under_two_entry_points_counts_once(environment):
    environment.strategy("acme", "fast", points={"first": "acme", "second": "acme"})

    by_point = {record["entry_point"]: record for record in environment.records("acme")}

    assert by_point["first = acme"]["status"] == "ok"
    assert by_point["second = acme"]["status"] == "broken"
    assert "already listed by 'first = acme' of acme" in by_point["second = acme"]["reason"]


def test_first_distribution_on_the_path_hides_later_ones_of_its_name(environment, tmp_path):
    environment.strategy("acme", "old", version="1.0")
    environment.strategy("acme", "new", version="2.0", site=tmp_path / "first")

    records = environment.records("acme", PYTHONPATH=str(tmp_path / "first"))

    assert [(record["name"], record["version"]) for record in records] == [("new", "2.0")]


def test_what_a_plugin_prints_does_not_spoil_the_json(environment):
    environment.install("acme", {"acme": "print('hello')"})

    assert environment.record("acme")["status"] == "broken"


@pytest.mark.parametrize("line", ["acme = acme core", "acme = not/a/module", "acme = acme:absent"])
def test_unusable_entry_point_is_broken(environment, line):
    environment.install("acme", {"acme": ""}, points=dict([line.split(" = ")]))

    assert environment.record("acme")["status"] == "broken"
