"""Which errors are waited out, and for how long."""

from __future__ import annotations

import errno

import pytest

from core.patience import patiently

TRANSIENT = {
    "refused": ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    "reset": ConnectionResetError(errno.ECONNRESET, "reset"),
    "timeout": TimeoutError("no answer"),
    "busy": OSError(errno.EBUSY, "Please reduce your request rate"),
}
LASTING = {
    "missing": FileNotFoundError(errno.ENOENT, "none"),
    "forbidden": PermissionError("Access Denied"),
    "full": OSError(errno.ENOSPC, "full"),
    "wrong": ValueError("wrong"),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.patience.FIRST_DELAY_SECONDS", 0.001)
    monkeypatch.setattr("core.patience.PATIENCE_SECONDS", 0.1)


class Failing:
    """Fails with `error`, the first `times` that it is called."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.calls = error, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "answer"


@pytest.mark.parametrize("error", TRANSIENT.values(), ids=TRANSIENT)
def test_what_may_pass_is_waited_for_and_said(error: Exception) -> None:
    said: list[Exception] = []

    assert patiently(Failing(error, 3), said.append) == "answer"

    assert said == [error] * 3


@pytest.mark.parametrize("error", TRANSIENT.values(), ids=TRANSIENT)
def test_what_does_not_pass_is_raised_in_the_end(error: Exception) -> None:
    request = Failing(error, 1000)

    with pytest.raises(type(error)):
        patiently(request, lambda error: None)

    assert 3 < request.calls < 12


@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_what_will_not_pass_is_raised_at_once(error: Exception) -> None:
    request = Failing(error, 1)

    with pytest.raises(type(error)):
        patiently(request, lambda error: None)

    assert request.calls == 1
