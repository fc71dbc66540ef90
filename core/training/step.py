"""One optimiser step: the loss of this worker's rows in micro-batches, their gradients, and the update."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from core.config.sections import Trainer
from core.loader import Batch
from core.training.batching import batching
from core.training.evaluation import loss_weight

if TYPE_CHECKING:
    from core.training.loop import Run


class Steps:
    """What the loop does with a batch. `core.training.exact` has another way to do it.

    Attributes:
        exchanged_bytes: what a worker hands to `Strategy.sum` in each step, gradients that the strategy itself
            exchanges apart.
    """

    exchanged_bytes = 0

    def __init__(self, run: Run) -> None:
        self.run = run
        self.cut = batching(run.config.trainer, run.strategy.world_size)

    def train(self, batch: Batch, step: int) -> tuple[list[float], bool]:
        """Take step number `step`.

        Returns:
            The sums of the rows' losses by output, over all workers, and whether any worker was asked to stop.
        """
        run, strategy, trainer = self.run, self.run.strategy, self.run.config.trainer
        seed(run.seed, step, strategy.rank, strategy.device)
        sums = torch.zeros(len(run.config.output_features) + 1, dtype=torch.float64, device=strategy.device)
        parts = list(micro_batches(batch, self.cut.parts(batch.global_rows, strategy.world_size)))
        for index, columns in enumerate(parts):
            last = index == len(parts) - 1
            with strategy.microbatch(last=last):
                loss = self.loss(strategy.model, columns, batch.global_rows, sums)
                if last and trainer.regularization_lambda and trainer.regularization_type:
                    loss = loss + penalty(strategy.model, trainer) / strategy.world_size
                run.profile.lap("forward")
                strategy.backward(loss)
                run.profile.lap("backward")
        sums[-1] = float(run.interrupted())
        *losses, stop = strategy.sum(sums).tolist()  # before the step, while gradients still travel
        run.profile.lap("exchange")
        strategy.step(self.max_norm)
        run.profile.lap("update")
        return losses, stop > 0

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The raw outputs of this worker's share."""
        outputs: dict[str, Tensor] = self.run.strategy.model(batch.columns)
        return outputs

    @property
    def max_norm(self) -> float | None:
        clipping = self.run.config.trainer.gradient_clipping
        return clipping.clipglobalnorm if clipping else None

    def loss(self, model: nn.Module, columns: dict[str, Tensor], global_rows: int, sums: Tensor) -> Tensor:
        """The part of these rows in the loss of the step; adds the sum of each output's row losses to `sums`."""
        with precision(self.run.config.trainer, self.run.strategy.device):
            outputs = model(columns)
        loss = torch.zeros((), device=self.run.strategy.device)
        for place, feature in enumerate(self.run.config.output_features):
            row_losses = feature.row_losses(
                outputs[feature.name].float(), columns[feature.name], self.run.metadata[feature.name]
            )
            total = row_losses.sum()
            sums[place] += total.detach()
            loss = loss + total * (loss_weight(feature) / global_rows)
        return loss


def seed(run_seed: int, step: int, stream: int, device: torch.device) -> None:
    """Start a random stream of its own for each step and worker, or each step and shard.

    A run that was resumed then draws the numbers it would have drawn.
    """
    number = ((run_seed * 1_000_003 + step) * 1_000_003 + stream) % 2**63
    # Not torch.manual_seed: where CUDA has not started it formats and keeps a traceback, in every step.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)


def micro_batches(batch: Batch, count: int) -> Iterator[dict[str, Tensor]]:
    """`count` parts of a share, sizes differing by at most one; a part may have no rows."""
    if count == 1:
        yield batch.columns
        return
    for index in range(count):
        rows = slice(batch.rows * index // count, batch.rows * (index + 1) // count)
        yield {name: column[rows] for name, column in batch.columns.items()}


def precision(trainer: Trainer, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if trainer.use_mixed_precision:
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def penalty(model: nn.Module, trainer: Trainer) -> Tensor:
    """The regularisation of the weights, biases and the like apart; of weights in shards, that of this worker's."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    total = torch.zeros((), device=weights[0].device)
    for weight in weights:
        # The gradient is all that comes of it, and a shard's is complete where the shard is.
        held = weight.to_local() if hasattr(weight, "to_local") else weight
        if trainer.regularization_type in ("l1", "l1_l2"):
            total = total + held.abs().sum()
        if trainer.regularization_type in ("l2", "l1_l2"):
            total = total + held.square().sum()
    return total * trainer.regularization_lambda
