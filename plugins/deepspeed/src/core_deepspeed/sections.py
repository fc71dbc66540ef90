"""What DeepSpeed itself says of the sections of its configuration, key by key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from core.errors import Problem
from core_deepspeed.checks import NOT_FOR_CORE, PATH
from core_deepspeed.engine import OWNED, configuration
from core_deepspeed.library import deepspeed, get_accelerator, use_device
from core_deepspeed.options import DeepSpeedOptions, Sections

MODELS = {
    "zero_optimization": deepspeed.runtime.zero.config.DeepSpeedZeroConfig,
    "bf16": deepspeed.runtime.precision_config.DeepSpeedBF16Config,
    "fp16": deepspeed.runtime.precision_config.DeepSpeedFP16Config,
}


def unsupported(options: DeepSpeedOptions, device: str) -> Iterator[Problem]:
    """16 bits that the hardware cannot compute in."""
    use_device(device)
    accelerator = get_accelerator()
    supported: dict[str, Callable[[], bool]] = {
        "bf16": accelerator.is_bf16_supported,
        "fp16": accelerator.is_fp16_supported,
    }
    for key, able in supported.items():
        if getattr(options, key).enabled and not able():
            yield Problem(
                message=f"{key} is not supported on this {'GPU' if device == 'cuda' else 'CPU'}",
                path=f"{PATH}.{key}.enabled",
                found=True,
                hint="Use bf16, or leave both out for 32 bits." if key == "fp16" else "Use 32 bits.",
            )


def refused(sections: Sections, device: str) -> Iterator[Problem]:
    """What DeepSpeed's own models of the sections say; then all of it together, where they say nothing."""
    use_device(device)
    told = False
    for key, model in MODELS.items():
        try:
            model(**sections.get(key, {}))
        except ValidationError as error:
            told = True
            yield from _translated(error, model, f"{PATH}.{key}")
        except Exception as error:  # assertions, and keys that are no names
            told = True
            yield Problem(message=f"DeepSpeed refuses it: {error}", path=f"{PATH}.{key}", found=sections[key])
    if told:
        return
    read = _Reads(configuration(sections))
    try:
        deepspeed.DeepSpeedConfig(read)
    except Exception as error:
        path = f"{PATH}.{read.last}" if read.last in sections else PATH
        if isinstance(error, ValidationError):
            yield from _translated(error, None, path)
        else:
            yield Problem(message=f"DeepSpeed refuses it: {error}", path=path)
        return
    for key in sections:
        if (
            key not in read.keys_read
            and key not in NOT_FOR_CORE
            and key not in ("optimizer", "train_batch_size", *OWNED)
        ):
            yield Problem(
                message="is no section that DeepSpeed reads", path=f"{PATH}.{key}", hint=_nearest(key, read.keys_read)
            )


def _translated(error: ValidationError, model: Any, path: str) -> Iterator[Problem]:
    for entry in error.errors():
        at = ".".join([path, *map(str, entry["loc"])])
        if entry["type"] == "extra_forbidden":
            names = (
                [name for key, field in model.model_fields.items() for name in (key, field.alias) if name]
                if model is not None and len(entry["loc"]) == 1
                else []
            )
            yield Problem(message="unknown key", path=at, hint=_nearest(str(entry["loc"][-1]), names))
        else:
            yield Problem(message=f"DeepSpeed refuses it: {entry['msg']}", path=at, found=entry["input"])


def _nearest(word: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(names), n=1)
    return f"Did you mean {close[0]}?" if close else ""


class _Reads(dict[str, Any]):
    """A configuration that remembers which of its keys were asked for: DeepSpeed passes over those it does not know."""

    def __init__(self, content: Sections) -> None:
        super().__init__(content)
        self.keys_read: set[str] = set()
        self.last = ""

    def __copy__(self) -> _Reads:
        return self

    def _note(self, key: str) -> None:
        self.keys_read.add(key)
        self.last = key

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)
