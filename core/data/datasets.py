"""What a run is given: one dataset that is divided, or one for each split."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import attrs

from core.errors import DataError


@attrs.frozen(kw_only=True)
class Datasets:
    """The datasets of a run, each as `open_source` takes it.

    Attributes:
        dataset: divided as `preprocessing.split` says.
        training_set, validation_set, test_set: given apart; the split is then not used.
    """

    dataset: Any = attrs.field(default=None, eq=False)
    training_set: Any = attrs.field(default=None, eq=False)
    validation_set: Any = attrs.field(default=None, eq=False)
    test_set: Any = attrs.field(default=None, eq=False)

    def __attrs_post_init__(self) -> None:
        apart = [name for name, _ in self._given() if name != "dataset"]
        if self.dataset is not None and apart:
            raise DataError(
                f"both a dataset and a {apart[0].replace('_', ' ')} are given",
                path=_option(apart[0]),
                hint="Give --dataset alone, which is split, or one for each split.",
            )
        if apart and self.training_set is None:
            raise DataError(
                f"a {apart[0].replace('_', ' ')} is given but no training set",
                path=_option(apart[0]),
                hint="Give --training-set too.",
            )

    def __bool__(self) -> bool:
        return any(True for _ in self._given())

    def __str__(self) -> str:
        return ", ".join(_shown(value) for _, value in self._given())

    def described(self) -> dict[str, Any] | None:
        """The arguments that make these datasets again, from any folder, as JSON; None where one is in memory."""
        described = {name: _absolute(_plain(value)) for name, value in self._given()}
        return None if None in described.values() else described

    def parts(self) -> list[tuple[str | None, Any]]:
        """(split, dataset) of each; the split is None for the one that is divided.

        Raises:
            DataError: there is none.
        """
        if not self:
            raise DataError("no dataset is given", path="--dataset", hint="Name a file, a folder or a glob.")
        return [(None if name == "dataset" else name.removesuffix("_set"), value) for name, value in self._given()]

    def _given(self) -> Iterator[tuple[str, Any]]:
        for field in attrs.fields(Datasets):
            if (value := getattr(self, field.name)) is not None:
                yield field.name, value


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _plain(value: Any) -> str | list[str] | None:
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str | os.PathLike) for item in value):
        return [os.fspath(item) for item in value]
    return None


def _absolute(plain: str | list[str] | None) -> str | list[str] | None:
    from core.storage import is_url

    if isinstance(plain, list):
        return [path if is_url(path) else os.path.abspath(path) for path in plain]
    return plain if plain is None or is_url(plain) else os.path.abspath(os.path.expanduser(plain))


def _shown(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return f"a {type(value).__name__} in memory"
    from core.storage import Location

    return ", ".join(str(Location(path)) for path in ([plain] if isinstance(plain, str) else plain))
