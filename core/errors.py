"""Everything core raises on purpose.

CoreError
 ├── UserError            the input is wrong: exit status 2, no traceback
 │    ├── ConfigError     the config does not describe a run (holds every problem found)
 │    ├── DataError       a dataset cannot be read or does not fit its config
 │    ├── ModelError      a saved model or run folder is missing or damaged
 │    ├── StorageError    a place cannot be read or written
 │    └── PluginError     a plugin is missing, unavailable, broken or ambiguous
 ├── TrainingError        a run started and could not finish: exit status 1
 │    ├── NonFiniteLoss
 │    └── WorkerFailed
 └── Interrupted          stopped by the user, resumable: exit status 130
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

_ABSENT: Any = attrs.NOTHING


@attrs.frozen(kw_only=True)
class Problem:
    """One thing that is wrong, in the parts a caller may want apart.

    Attributes:
        message: what is wrong, one sentence without a full stop.
        path: where: a config path (``trainer.batch_size``), a file, or ``file:line:column: path``.
        found: the offending value, or ``attrs.NOTHING`` where there is none to show.
        expected: what would be right.
        hint: what to do about it.
    """

    message: str
    path: str = ""
    found: Any = attrs.field(factory=lambda: _ABSENT)
    expected: str = ""
    hint: str = ""

    def __str__(self) -> str:
        head = f"{self.path}: {self.message}" if self.path else self.message
        details = []
        if self.found is not _ABSENT:
            details.append(f"found {_short(self.found)}")
        if self.expected:
            details.append(f"expected {self.expected}")
        if details:
            head += f" ({', '.join(details)})"
        return f"{head}\n    {self.hint}" if self.hint else head


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class CoreError(Exception):
    """An expected failure, printed as a message without a traceback.

    `problems` holds one `Problem` or more; `path`, `found`, `expected` and `hint` are those of the first.
    """

    exit_status = 1

    def __init__(
        self,
        message: str | Iterable[Problem],
        *,
        path: str = "",
        found: Any = _ABSENT,
        expected: str = "",
        hint: str = "",
    ) -> None:
        if isinstance(message, str):
            message = [Problem(message=message, path=path, found=found, expected=expected, hint=hint)]
        self.problems: tuple[Problem, ...] = tuple(message)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders; the default reduction would pass only the text to `__init__`.
        return _remade, (type(self), self.__dict__)

    @property
    def path(self) -> str:
        return self.problems[0].path

    @property
    def found(self) -> Any:
        return self.problems[0].found

    @property
    def expected(self) -> str:
        return self.problems[0].expected

    @property
    def hint(self) -> str:
        return self.problems[0].hint


def _remade(kind: type[CoreError], state: dict[str, Any]) -> CoreError:
    """An error as it was, whatever arguments the `__init__` of its class takes."""
    error = kind.__new__(kind)
    CoreError.__init__(error, state["problems"])
    error.__dict__.update(state)
    return error


class UserError(CoreError):
    """The user's input is wrong."""

    exit_status = 2


class ConfigError(UserError):
    """The config does not describe a run."""


class DataError(UserError):
    """A dataset cannot be read, or does not fit its config."""


class ModelError(UserError):
    """A saved model or a run's folder is missing or damaged."""


class StorageError(UserError):
    """A place cannot be read or written."""


class PluginError(UserError):
    """A plugin is missing, unavailable, broken or ambiguous."""


class TrainingError(CoreError):
    """A run started and could not finish."""


class NonFiniteLoss(TrainingError):
    """The loss became NaN or infinite."""


class WorkerFailed(TrainingError):
    """A worker process died or raised."""


class Interrupted(CoreError):
    """Stopped by the user; what was saved can be continued."""

    exit_status = 130
