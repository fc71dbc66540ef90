from __future__ import annotations

import argparse
import importlib
import logging
import os
import subprocess
import sys
import types

import pytest

import core as package
from core import cli
from core.errors import ConfigError, Interrupted, Problem, TrainingError

HEAVY = {"torch", "ray", "dask", "pandas", "pyarrow", "numpy"}


@pytest.fixture
def command(monkeypatch):
    """Puts a command named `try` in the place of a module, whose `run` is the function given."""

    def install(run):
        module = types.ModuleType("core.cli.try")
        module.__doc__ = "Try something."
        module.run = run

        def add_arguments(parser):
            parser.add_argument("-od", "--output-directory")
            parser.add_argument("--set", action="append")
            parser.add_argument("--model-path", required=True)

        module.add_arguments = add_arguments
        monkeypatch.setitem(sys.modules, "core.cli.try", module)
        monkeypatch.setitem(cli.COMMANDS, "try", "try something")
        return lambda *words: cli.main(["try", "--model-path", "m", *words])

    yield install
    logging.getLogger("core").setLevel(logging.NOTSET)


def fails_with(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize("status", [0, 1, 2])
def test_status_is_what_the_command_returns(command, status):
    assert command(lambda args: status)() == status


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (
            ConfigError("unknown key", path="trainer.epoch", hint="did you mean epochs?"),
            2,
            "core: trainer.epoch: unknown",
        ),
        (TrainingError("the loss is NaN"), 1, "core: the loss is NaN\n"),
        (Interrupted("stopped; resume with …"), 130, "core: stopped; resume with …\n"),
        (KeyboardInterrupt(), 130, "core: interrupted\n"),
    ],
)
def test_expected_failure_is_a_message_and_a_status(command, capsys, error, status, text):
    assert command(fails_with(error))() == status

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(text)
    assert "Traceback" not in err


def test_verbose_adds_the_traceback(command, capsys):
    assert command(fails_with(ConfigError("no")))("--verbose") == 2

    assert "Traceback" in capsys.readouterr().err


def test_unexpected_failure_shows_its_traceback(command, capsys):
    assert command(fails_with(ZeroDivisionError("oh")))() == 1

    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("core: unexpected ZeroDivisionError; the traceback above says where\n")


def test_several_problems_are_counted_and_listed(command, capsys):
    problems = [Problem(message="wrong", path="a", hint="mend it"), Problem(message="also wrong", path="b")]

    assert command(fails_with(ConfigError(problems)))() == 2

    assert capsys.readouterr().err == "core: 2 problems\n  a: wrong\n      mend it\n  b: also wrong\n"


@pytest.mark.parametrize("words", [["--output_directory", "x_y"], ["--output_directory=x_y"], ["-od", "x_y"]])
def test_spellings_of_a_long_option(command, words):
    seen = []

    def run(args):
        seen.append(args.output_directory)
        return 0

    assert command(run)(*words) == 0
    assert seen == ["x_y"]


def test_values_keep_their_underscores(command):
    seen = []

    def run(args):
        seen.extend(args.set)
        return 0

    assert command(run)("--set", "trainer.batch_size=3", "--set=trainer.train_steps=1") == 0
    assert seen == ["trainer.batch_size=3", "trainer.train_steps=1"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["trian"], "unknown command 'trian'", "did you mean train?"),
        (["frobnicate"], "unknown command 'frobnicate'", "commands: train, "),
        (["--versoin"], "unknown option --versoin", "did you mean --version?"),
        (["list-plugins", "--jsno"], "unknown option --jsno", "did you mean --json?"),
        (["list-plugins", "--zzz=1"], "unknown option --zzz", "`core list-plugins --help` lists the options"),
        (["list-plugins", "extra"], "unrecognized arguments: extra", "--help"),
        (["list-plugins", "--quiet", "--verbose"], "not allowed with", "--help"),
    ],
)
def test_wrong_usage_names_the_nearest(capsys, words, message, hint):
    assert cli.main(words) == 2

    err = capsys.readouterr().err
    assert message in err
    assert hint in err


def test_missing_option_is_named(command, capsys):
    command(fails_with(AssertionError()))

    assert cli.main(["try"]) == 2
    assert "--model-path" in capsys.readouterr().err


def test_mistyped_required_option_is_told_from_a_missing_one(command, capsys):
    command(fails_with(AssertionError()))

    assert cli.main(["try", "--model_paht", "m"]) == 2
    assert "did you mean --model-path?" in capsys.readouterr().err


def test_no_abbreviations(command):
    assert command(lambda args: 0)("--output", "x") == 2


def test_commands_are_accepted_with_underscores():
    assert cli.main(["list_plugins", "--quiet"]) == 0


def test_without_a_command_the_help_is_an_error(capsys):
    assert cli.main([]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    for name in cli.COMMANDS:
        assert name in err


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"core {package.__version__}\n"


def test_help_exits_with_0(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["list-plugins", "--help"])

    assert caught.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "level"), [([], "INFO"), (["--quiet"], "WARNING"), (["--verbose"], "DEBUG")])
def test_loudness_is_the_level_of_the_log(command, words, level):
    assert command(lambda args: 0)(*words) == 0
    assert logging.getLogger("core").level == logging.getLevelName(level)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_a_module_with_the_two_functions(name):
    module = importlib.import_module(f"core.cli.{name.replace('-', '_')}")

    assert module.__doc__
    module.add_arguments(argparse.ArgumentParser())
    assert callable(module.run)


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in cli.COMMANDS)])
def test_help_is_fast_and_imports_nothing_heavy(core, start_up_seconds, words):
    def run():
        assert core(*words).returncode == 0

    assert start_up_seconds(run) < 0.3
    code = f"""
import sys
from core.cli import main
try:
    main({words})
except SystemExit:
    assert not {HEAVY} & set(sys.modules), {HEAVY} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_closed_pipe_is_no_traceback():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "core", "list-plugins"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == ""


def test_python_m_core_is_the_command(core):
    assert core("--version").stdout == f"core {package.__version__}\n"
    assert core("trian").returncode == 2
