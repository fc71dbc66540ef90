from __future__ import annotations

import pytest

from core.errors import PluginError
from core.registry import registry
from core.specs import LoaderOptions


@pytest.mark.parametrize(("kind", "name"), [("processor", "pandas"), ("strategy", "single"), ("loader", "memory")])
def test_built_in_plugins_are_found(kind, name):
    spec = registry().spec(kind, name)

    assert spec == registry().choices(kind)[name]
    assert name in registry().names(kind)
    assert registry().spec(kind, f"core:{name}") is spec


def test_implementation_is_imported_on_demand():
    from core.strategy import Strategy

    assert registry().implementation("strategy", "single") is Strategy


def test_every_built_in_implementation_exists():
    for record in registry().records:
        if record.dist == "core":
            assert isinstance(registry().implementation(record.kind, record.name), type)


def test_options_of_the_built_in_loader_are_the_common_ones():
    assert registry().spec("loader", "memory").options is LoaderOptions


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("strategy", "singel", "did you mean 'single'?"),
        ("strategy", "horovd", "did you mean 'horovod'?"),
        ("processor", "panda", "did you mean 'pandas'?"),
        ("processor", "core:panda", "did you mean 'pandas'?"),
    ],
)
def test_unknown_name_gets_the_nearest(kind, name, hint):
    with pytest.raises(PluginError) as caught:
        registry().spec(kind, name)

    assert caught.value.found == name
    assert hint in caught.value.hint
    assert f"unknown {kind}" in str(caught.value)


def test_name_of_another_kind_is_unknown():
    with pytest.raises(PluginError):
        registry().spec("loader", "pandas")


def test_unknown_name_of_ours_says_what_brings_it(environment):
    text = environment.look_up("spec('strategy', 'ddp')", CORE_DISABLE_PLUGINS="core-ddp")

    assert "pip install 'core[ddp]'" in text or "core-ddp 0.1.0 (ddp = core_ddp) is disabled" in text


def test_installed_distribution_that_provides_nothing_is_not_recommended(environment):
    environment.install("core-horovod", {}, points={"": ""})
    (environment.site / "core_horovod-1.0.dist-info" / "entry_points.txt").unlink()

    assert "core-horovod 1.0 is installed and does not provide it" in environment.look_up("spec('strategy', 'horovod')")


def test_unknown_name_mentions_what_did_not_load(environment):
    environment.install("acme", {"acme": "raise RuntimeError('no')"})

    assert "acme 1.0 (acme = acme) is broken: RuntimeError: no" in environment.look_up("spec('strategy', 'fast')")


def test_unavailable_plugin_has_a_spec_and_no_implementation(environment):
    environment.strategy("core-horovod", "horovod", more="needs=('absent_lib',)")

    assert "name='horovod'" in environment.look_up("spec('strategy', 'horovod')")
    text = environment.look_up("implementation('strategy', 'horovod')")
    assert "strategy 'horovod' of core-horovod 1.0 is unavailable" in text
    assert "needs absent_lib: pip install 'core[horovod]'" in text


def test_a_plugin_may_say_itself_how_to_get_what_it_needs(environment):
    environment.strategy("core-horovod", "horovod", more="needs=('absent_lib',), remedy='make absent_lib'")

    assert "needs absent_lib: make absent_lib" in environment.look_up("implementation('strategy', 'horovod')")


@pytest.mark.parametrize(
    ("implementation", "reason"),
    [
        ("acme:Absent", "AttributeError"),
        ("acme_absent:Thing", "ModuleNotFoundError: No module named 'acme_absent'"),
        ("acme_bad:Thing", "ZeroDivisionError"),
    ],
)
def test_failed_import_of_an_implementation_is_a_plugin_error(environment, implementation, reason):
    (environment.site / "acme_bad.py").write_text("1 / 0")
    source = f"""
        from core import StrategySpec, hookimpl
        @hookimpl
        def register_strategy():
            yield StrategySpec(name="fast", summary="s", implementation="{implementation}")
    """
    environment.install("acme", {"acme": source})

    text = environment.look_up("implementation('strategy', 'fast')")

    assert "strategy 'fast' of acme 1.0 cannot be imported" in text
    assert reason in text
