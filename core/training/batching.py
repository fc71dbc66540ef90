"""Batch arithmetic: rows of a step, each worker's share, and the micro-batches inside it."""

from __future__ import annotations

import math

import attrs

from core.config.sections import Trainer

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


def not_applicable(trainer: Trainer) -> list[str]:
    """One line for each key that is set and has no effect beside the others."""
    if trainer.learning_rate_scaling != "constant" and trainer.batch_size_per_worker is None:
        return ["trainer.learning_rate_scaling does not apply: batch_size counts rows over all workers"]
    return []
