"""A run's folder, and the model folder inside it: what is written where, and reading it back with care."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from core.errors import ConfigError, ModelError, StorageError, UserError

if TYPE_CHECKING:
    from torch import Tensor

    from core.config.sections import Config

WEIGHTS, CONFIG, METADATA = "model.safetensors", "config.json", "metadata.json"
MODEL_FORMAT = 1


@attrs.frozen
class RunFolder:
    """``results/<experiment>_<model>[_N]/`` and the names in it."""

    path: Path

    @classmethod
    def create(cls, output_directory: str | os.PathLike[str], experiment: str, model: str) -> RunFolder:
        """A new folder; `_1`, `_2`, … is added where the name is taken. Safe against runs that start together."""
        base = cls.parent_of(output_directory, experiment, model)
        with storage_errors("create", base):
            number = 0
            while True:
                path = base / (f"{experiment}_{model}" + (f"_{number}" if number else ""))
                try:
                    path.mkdir()
                except FileExistsError:
                    number += 1
                else:
                    return cls(path.absolute())

    @staticmethod
    def parent_of(output_directory: str | os.PathLike[str], experiment: str, model: str) -> Path:
        """The folder, which now exists, that `create` would make a run's folder in.

        Raises:
            UserError: it cannot be made, or the names are none of a folder.
        """
        for option, name in (("--experiment-name", experiment), ("--model-name", model)):
            if re.search(r"[/\\\0]", name):
                raise UserError("cannot be part of a folder's name", path=option, found=name, expected="no slash in it")
        base = Path(output_directory).expanduser()
        with storage_errors("create", base):
            base.mkdir(parents=True, exist_ok=True)
        return base

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder of an earlier run.

        Raises:
            ModelError: it is not there, or is not a run's folder.
        """
        folder = cls(Path(path).expanduser().absolute())
        if not folder.path.is_dir():
            raise ModelError(
                "there is no such run folder", path=str(path), hint="Give the folder `core train` printed."
            )
        if not folder.description.is_file():
            raise ModelError(
                "this is not a run's folder: it has no description.json",
                path=str(path),
                hint="Give the folder that holds `model/` and `checkpoints/`, not one of them.",
            )
        return folder

    @property
    def description(self) -> Path:
        return self.path / "description.json"

    @property
    def statistics(self) -> Path:
        return self.path / "training_statistics.json"

    @property
    def learning_curves(self) -> Path:
        return self.path / "learning_curves.png"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"


@attrs.frozen(kw_only=True)
class SavedModel:
    """What is in a model folder, before a network is built.

    Attributes:
        path: the folder.
        config: the config it was trained with, `backend` apart.
        metadata: feature name to what preprocessing learnt of it.
        seed: the run's random seed, which decides how rows are split.
    """

    path: Path
    config: Config
    metadata: dict[str, dict[str, Any]]
    seed: int

    def weights(self) -> dict[str, Tensor]:
        """Parameter name to tensor, on CPU.

        Raises:
            ModelError: the file is missing or damaged.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(self.path / WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise _damaged(self.path / WEIGHTS, str(error)) from error


def save_model(
    folder: Path, config: Config, metadata: Mapping[str, Any], seed: int, weights: Mapping[str, Tensor]
) -> None:
    """Write a model folder; what was there before stays whole until the new one is complete."""
    from safetensors.torch import save

    from core.config import model_config

    content = save({name: tensor.contiguous() for name, tensor in weights.items()})
    described = {
        "format": MODEL_FORMAT,
        "features": dict(metadata),
        "random_seed": seed,
        "weights_sha256": hashlib.sha256(content).hexdigest(),
    }
    with storage_errors("write", folder):
        temporary = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
        replaced = folder.with_name(f".{folder.name}-old")
        temporary.mkdir(parents=True)
        try:
            (temporary / WEIGHTS).write_bytes(content)
            write_json(temporary / CONFIG, model_config(config))
            write_json(temporary / METADATA, described)
            shutil.rmtree(replaced, ignore_errors=True)
            if folder.exists():
                os.replace(folder, replaced)
            os.replace(temporary, folder)
        finally:  # a full disk should not be fuller for the attempt
            shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def open_model(path: str | os.PathLike[str]) -> SavedModel:
    """The model in a folder: the model folder itself, or the run's folder around it.

    Raises:
        ModelError: it is missing, damaged, or from a newer version.
    """
    from core.config import load

    folder = Path(path).expanduser().absolute()
    if (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    if not folder.is_dir():
        raise ModelError("there is no such model folder", path=str(path), hint="Give the `model` folder of a run.")
    missing = [name for name in (WEIGHTS, CONFIG, METADATA) if not (folder / name).is_file()]
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


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file as a whole."""
    with storage_errors("write", path):
        temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
        try:
            temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def without_nan(value: Any) -> Any:
    """JSON has no NaN: a metric that is undefined is null."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path, *keys: str) -> Any:
    """A JSON file of a run or model: an object with at least these keys, where any are named.

    Raises:
        ModelError: it is missing or damaged.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if keys:
        _require(path, value, *keys)
    return value


def _require(path: Path, value: Any, *keys: str) -> None:
    if not isinstance(value, dict):
        raise _damaged(path, "it holds no object")
    if absent := [key for key in keys if key not in value]:
        raise _damaged(path, f"{', '.join(map(repr, absent))} missing")


@contextlib.contextmanager
def storage_errors(action: str, place: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the place."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot {action} it: {error.strerror or error}",
            path=str(error.filename or place),
            hint="Check the permissions and the free space, or choose another --output-directory.",
        ) from error


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"damaged: {reason}", path=str(path), hint="Copy the model folder again, or train it again.")
