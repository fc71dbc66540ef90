"""A run's folder, and the model folder inside it: what is written where, and reading it back with care."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from core.errors import ConfigError, ModelError, StorageError, UserError
from core.storage import Location

if TYPE_CHECKING:
    from torch import Tensor

    from core.config.sections import Config

WEIGHTS, CONFIG, METADATA = "model.safetensors", "config.json", "metadata.json"
MODEL_FORMAT = 1
_CLAIM = ".claim"
_SETTLED_SECONDS = 0.5


@attrs.frozen
class RunFolder:
    """``results/<experiment>_<model>[_N]/`` and the names in it."""

    location: Location

    @classmethod
    def create(cls, output_directory: str | os.PathLike[str], experiment: str, model: str) -> RunFolder:
        """A new folder; `_1`, `_2`, … is added where the name is taken. Safe against runs that start together."""
        base = cls.parent_of(output_directory, experiment, model)
        number = 0
        while True:
            location = base / (f"{experiment}_{model}" + (f"_{number}" if number else ""))
            if _claimed(location):
                return cls(location)
            number += 1

    @staticmethod
    def parent_of(output_directory: str | os.PathLike[str], experiment: str, model: str) -> Location:
        """The folder, which now exists, that `create` would make a run's folder in.

        Raises:
            UserError: it cannot be made, or the names are none of a folder.
        """
        for option, name in (("--experiment-name", experiment), ("--model-name", model)):
            if re.search(r"[/\\\0]", name):
                raise UserError("cannot be part of a folder's name", path=option, found=name, expected="no slash in it")
        base = place_of(output_directory).absolute()
        try:
            base.makedirs()
        except StorageError as error:
            hint = "Choose another --output-directory."
            raise StorageError([attrs.evolve(error.problems[0], hint=hint)]) from error
        return base

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder of an earlier run.

        Raises:
            ModelError: it is not there, or is not a run's folder.
        """
        folder = cls(place_of(path).absolute())
        if not folder.location.is_dir():
            raise ModelError(
                "there is no such run folder", path=str(path), hint="Give the folder `core train` printed."
            )
        if not folder.description.exists():
            raise ModelError(
                "this is not a run's folder: it has no description.json",
                path=str(path),
                hint="Give the folder that holds `model/` and `checkpoints/`, not one of them.",
            )
        return folder

    @property
    def description(self) -> Location:
        return self.location / "description.json"

    @property
    def statistics(self) -> Location:
        return self.location / "training_statistics.json"

    @property
    def learning_curves(self) -> Location:
        return self.location / "learning_curves.png"

    @property
    def model(self) -> Location:
        return self.location / "model"

    @property
    def checkpoints(self) -> Location:
        return self.location / "checkpoints"


def place_of(path: str | os.PathLike[str] | Location) -> Location:
    """What a user named."""
    return path if isinstance(path, Location) else Location(os.fspath(path))


def _claimed(location: Location) -> bool:
    """Whether the folder is this run's now. Object stores have no folders to make: there, a file claims the name."""
    if location.local_path is None:
        if location.exists():
            return False
        claim, token = location / _CLAIM, uuid.uuid4().hex.encode()
        if not claim.write_new(token):
            return False
        # Where a store lets several write, the last of them has the name.
        time.sleep(_SETTLED_SECONDS)
        return claim.read_bytes() == token
    try:
        os.mkdir(location)
    except FileExistsError:
        return False
    except OSError as error:
        raise StorageError(f"cannot create it: {error.strerror}", path=str(location)) from error
    return True


@attrs.frozen(kw_only=True)
class SavedModel:
    """What is in a model folder, before a network is built.

    Attributes:
        path: the folder.
        config: the config it was trained with, `backend` apart.
        metadata: feature name to what preprocessing learnt of it.
        seed: the run's random seed, which decides how rows are split.
    """

    path: Location
    config: Config
    metadata: dict[str, dict[str, Any]]
    seed: int

    def weights(self) -> dict[str, Tensor]:
        """Parameter name to tensor, on CPU.

        Raises:
            ModelError: the file is missing or damaged.
        """
        try:
            return read_tensors(self.path / WEIGHTS)
        except (StorageError, ValueError) as error:
            raise _damaged(self.path / WEIGHTS, str(error)) from error


def save_model(
    folder: Location, config: Config, metadata: Mapping[str, Any], seed: int, weights: Mapping[str, Tensor]
) -> None:
    """Write a model folder; on a local disk, what was there before stays whole until the new one is complete."""
    from core.config import model_config

    with folder.replacing(last=METADATA) as files:
        write_tensors(files / WEIGHTS, weights)
        (files / CONFIG).write_text(as_json(model_config(config)), encoding="utf-8")
        with open(files / WEIGHTS, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        described = {
            "format": MODEL_FORMAT,
            "features": dict(metadata),
            "random_seed": seed,
            "weights_sha256": checksum,
        }
        (files / METADATA).write_text(as_json(described), encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # how it says that the disk is full
        raise OSError(str(error)) from error


def read_tensors(location: Location) -> dict[str, Tensor]:
    """A safetensors file.

    Raises:
        StorageError: it cannot be read.
        ValueError: it is none.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load, load_file

    try:
        return load(location.read_bytes()) if location.local_path is None else load_file(location)
    except FileNotFoundError:
        raise StorageError("there is no such file", path=str(location)) from None
    except (OSError, SafetensorError) as error:
        raise ValueError(str(error)) from error


def open_model(path: str | os.PathLike[str]) -> SavedModel:
    """The model in a folder: the model folder itself, or the run's folder around it.

    Raises:
        ModelError: it is missing, damaged, or from a newer version.
    """
    from core.config import load

    folder = place_of(path).absolute()
    if (folder / "model" / CONFIG).exists():
        folder = folder / "model"
    if not folder.is_dir():
        raise ModelError("there is no such model folder", path=str(path), hint="Give the `model` folder of a run.")
    missing = [name for name in (WEIGHTS, CONFIG, METADATA) if not (folder / name).exists()]
    if missing:
        raise ModelError(
            f"not a complete model folder: {', '.join(missing)} missing",
            path=str(path),
            hint="Give the `model` folder of a finished run.",
        )
    metadata = read_json(folder / METADATA)
    if not isinstance(metadata, dict) or metadata.get("format") != MODEL_FORMAT:
        raise ModelError(
            "model folder of another format",
            path=str(folder / METADATA),
            found=metadata.get("format") if isinstance(metadata, dict) else metadata,
            expected=f"format {MODEL_FORMAT}",
            hint="Train it again, or load it with the version of core that wrote it.",
        )
    _require(folder / METADATA, metadata, "features", "weights_sha256", "random_seed")
    if hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest() != metadata["weights_sha256"]:
        raise _damaged(folder / WEIGHTS, "its checksum differs from the one in metadata.json")
    try:
        config = load(read_json(folder / CONFIG, "input_features", "output_features"))
    except ConfigError as error:
        raise _damaged(folder / CONFIG, str(error)) from error
    names = [feature.name for feature in (*config.input_features, *config.output_features)]
    _require(folder / METADATA, metadata["features"], *names)
    return SavedModel(path=folder, config=config, metadata=metadata["features"], seed=metadata["random_seed"])


def write_json(location: Location, value: Any) -> None:
    """Replace a JSON file as a whole."""
    location.write_atomic(as_json(value).encode())


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def without_nan(value: Any) -> Any:
    """JSON has no NaN: a metric that is undefined is null."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Location, *keys: str) -> Any:
    """A JSON file of a run or model: an object with at least these keys, where any are named.

    Raises:
        ModelError: it is missing or damaged.
    """
    try:
        value = json.loads(path.read_bytes())
    except (StorageError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if keys:
        _require(path, value, *keys)
    return value


def _require(path: Location, value: Any, *keys: str) -> None:
    if not isinstance(value, dict):
        raise _damaged(path, "it holds no object")
    if absent := [key for key in keys if key not in value]:
        raise _damaged(path, f"{', '.join(map(repr, absent))} missing")


def _damaged(path: Location, reason: str) -> ModelError:
    return ModelError(f"damaged: {reason}", path=str(path), hint="Copy the model folder again, or train it again.")
