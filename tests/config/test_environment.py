from __future__ import annotations

import pytest

from core.config import load
from core.config.environment import escaped, expand

ENVIRONMENT = {"N": "4", "WORD": "ray", "EMPTY": "", "RATE": "1e-3"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${N}", 4),
        ("${RATE}", 0.001),
        ("${EMPTY}", None),
        ("${WORD}", "ray"),
        ("${NONE:-2}", 2),
        ("${N:-2}", 4),
        ("${NONE:-}", None),
        ("s3://${WORD}/${N}", "s3://ray/4"),
        ("$${N}", "${N}"),
        ("$N", "$N"),
        ("cost: $5", "cost: $5"),
        ("a$${N}b${N}", "a${N}b4"),
    ],
)
def test_references(written: str, meant: object) -> None:
    assert expand({"key": [written]}, ENVIRONMENT) == ({"key": [meant]}, [])


@pytest.mark.parametrize("secret", ["00123", "1e5", "null", "true"])
def test_credentials_stay_text_whatever_they_look_like(secret: str) -> None:
    config = {"backend": {"cache_credentials": {"s3": {"secret": "${SECRET}"}}}}

    assert expand(config, {"SECRET": secret})[0]["backend"]["cache_credentials"] == {"s3": {"secret": secret}}


def test_every_missing_variable_is_reported_with_its_path() -> None:
    _, problems = expand({"a": "${ONE}", "b": [{"c": "x${TWO}"}]}, {})

    assert [path for path, _ in problems] == [("a",), ("b", 0, "c")]
    assert "ONE" in problems[0][1].message
    assert "${ONE:-default}" in problems[0][1].hint


@pytest.mark.parametrize("written", ["${}", "${1a}", "${A", "x${a-b}"])
def test_a_broken_reference_is_an_error(written: str) -> None:
    _, [(path, problem)] = expand({"a": written}, {"A": "1"})

    assert path == ("a",)
    assert "$${" in problem.hint


@pytest.mark.parametrize("text", ["${N}", "$${N}", "$$${", "a${", "$", "}{"])
def test_escaped_text_expands_to_itself(text: str) -> None:
    assert expand([escaped(text)], ENVIRONMENT) == ([text], [])


def test_a_config_reads_the_environment(minimal, problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKERS", "2")
    monkeypatch.delenv("NOWHERE", raising=False)

    config = load(minimal | {"backend": {"type": "local", "trainer": {"num_workers": "${WORKERS}"}}})
    assert config.backend.trainer.num_workers == 2

    found = problems(trainer={"epochs": "${NOWHERE}"})
    assert list(found) == ["trainer.epochs"]  # and no second error about the type of nothing
