"""Batch arithmetic: rows of a step, each worker's share, and the micro-batches inside it."""

from __future__ import annotations

import math

import attrs

from core.config.sections import Trainer
from core.errors import ConfigError
from core.registry import registry
from core.specs import StrategySpec

DEFAULT_BATCH_SIZE = 128


@attrs.frozen(kw_only=True)
class Batching:
    """How the rows of a step are cut.

    Attributes:
        rows: rows of one optimiser step over all workers.
        accumulation: parts into which every worker cuts its share, or None where `most_rows` decides.
        most_rows: most rows a device holds at once, or None for no limit.
    """

    rows: int
    accumulation: int | None = None
    most_rows: int | None = None

    def parts(self, global_rows: int, world_size: int) -> int:
        """Number of micro-batches of a step; the same on every worker, since each may be a collective."""
        if self.most_rows is None:
            return self.accumulation or 1
        largest_share = -(-global_rows // world_size)
        return -(-largest_share // self.most_rows)


def batching(trainer: Trainer, world_size: int) -> Batching:
    """The step that a `trainer` section asks for on `world_size` workers."""
    accumulation = trainer.gradient_accumulation_steps
    if trainer.effective_batch_size is not None:
        rows = trainer.effective_batch_size
        if accumulation is None and trainer.batch_size is not None:
            accumulation = rows // trainer.batch_size
    elif trainer.batch_size_per_worker is not None:
        rows = trainer.batch_size_per_worker * world_size
    else:
        rows = trainer.batch_size or DEFAULT_BATCH_SIZE
    return Batching(rows=rows, accumulation=accumulation, most_rows=trainer.max_rows_per_device)


def learning_rate(trainer: Trainer, world_size: int) -> float:
    """The base rate. It grows with the number of workers where the batch does, and `learning_rate_scaling` asks."""
    if trainer.batch_size_per_worker is None:
        return trainer.learning_rate
    power = {"constant": 0.0, "linear": 1.0, "sqrt": 0.5}[trainer.learning_rate_scaling]
    return trainer.learning_rate * math.pow(world_size, power)


def check_exact(trainer: Trainer, strategy: str, workers: int) -> None:
    """Whether `trainer.exact`, if it is on, can be kept with this strategy on so many workers.

    Raises:
        ConfigError: it cannot.
    """
    if not trainer.exact:
        return
    spec = registry().spec("strategy", strategy)
    assert isinstance(spec, StrategySpec)
    if not spec.exact:
        able = [
            name for name, of in registry().choices("strategy").items() if isinstance(of, StrategySpec) and of.exact
        ]
        raise ConfigError(
            f"strategy {strategy!r} cannot promise the same weights on any number of workers",
            path="trainer.exact",
            found=strategy,
            expected=f"one of {', '.join(able)}",
            hint="Choose another backend.trainer.strategy, or leave trainer.exact out.",
        )
    shards = trainer.exact_shards
    if shards % workers:
        divisors = [str(number) for number in range(1, shards + 1) if shards % number == 0]
        raise ConfigError(
            f"{workers} workers cannot take equal parts of {shards} shards",
            path="trainer.exact",
            found=f"{workers} workers, {shards} shards",
            expected=f"{' or '.join(filter(None, [', '.join(divisors[:-1]), divisors[-1]]))} workers",
            hint="Weights depend on trainer.exact_shards: give every run that is to be equal the same number.",
        )


def not_applicable(trainer: Trainer) -> list[str]:
    """One line for each key that is set and has no effect beside the others."""
    notes = []
    if trainer.learning_rate_scaling != "constant" and trainer.batch_size_per_worker is None:
        notes.append("trainer.learning_rate_scaling does not apply: batch_size counts rows over all workers")
    if trainer.exact_shards != attrs.fields(Trainer).exact_shards.default and not trainer.exact:
        notes.append("trainer.exact_shards does not apply: trainer.exact is off")
    return notes
