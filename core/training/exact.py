"""Exact mode: weights that are the same to the last bit, dropout included, whatever the number of workers.

Floating-point addition is not associative, and a random stream belongs to whoever draws from it, so a result depends
on how a batch is spread. Here it is always spread alike: over `trainer.exact_shards` virtual shards, each computed as
by a worker of its own, with its own random stream. Real workers compute whole shards; the gradients of all of them
travel to every worker, which adds them in the order of the shards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from core.loader import Batch
from core.training.step import Steps, micro_batches, penalty, seed

if TYPE_CHECKING:
    from core.training.loop import Run

CHUNK_BYTES = 32 << 20
"""Gradients of all shards that are exchanged at once; what bounds the memory of the exchange."""


class ExactSteps(Steps):
    """Steps whose every number is a function of the batch, the weights, the seed and the number of shards."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        strategy = run.strategy
        self.module = strategy.module
        self.shards = run.config.trainer.exact_shards
        each = self.shards // strategy.world_size
        self.mine = range(strategy.rank * each, (strategy.rank + 1) * each)
        self.parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        self.statistics = _running_statistics(self.module)
        if strategy.world_size > 1:
            self.exchanged_bytes = self.shards * sum(parameter.nbytes for parameter in self.parameters)

    def train(self, batch: Batch, step: int) -> tuple[list[float], bool]:
        run, strategy, trainer = self.run, self.run.strategy, self.run.config.trainer
        sums = torch.zeros(
            len(self.mine), len(run.config.output_features) + 1, dtype=torch.float64, device=strategy.device
        )
        before = [statistic.clone() for statistic in self.statistics]
        gradients, seen = [], []
        parts = self.cut.parts(batch.global_rows, self.shards)
        for row, (shard, part) in zip(sums, self._shards_of(batch), strict=True):
            _restore(self.statistics, before)
            seed(run.seed, step, shard, strategy.device)
            gradients.append(torch.zeros(()))
            for columns in micro_batches(part, parts):
                loss = self.loss(self.module, columns, batch.global_rows, row)
                run.profile.lap("forward")
                gradients[-1] = gradients[-1] + self._gradient(loss)
                run.profile.lap("backward")
            seen.append([statistic.double().flatten() for statistic in self.statistics])
        gradient = self._in_shard_order(gradients)
        run.profile.lap("exchange")
        if trainer.regularization_lambda and trainer.regularization_type:
            gradient += self._gradient(penalty(self.module, trainer))  # the same on every worker, as the weights are
        for parameter, part_of in zip(self.parameters, _split(gradient, self.parameters), strict=True):
            parameter.grad = part_of
        strategy.update(self.max_norm)
        run.profile.lap("update")
        if self.statistics:  # float64 holds float32, and counts of batches, without loss
            mean = self._in_shard_order([torch.cat(statistics) for statistics in seen]) / self.shards
            _restore(self.statistics, _split(mean, self.statistics))
        sums[0, -1] = float(run.interrupted())
        *totals, stop = self._in_shard_order(list(sums)).tolist()
        run.profile.lap("exchange")
        return totals, stop > 0

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """The raw outputs of this worker's share, a shard at a time: the shape of a product decides how it is added."""
        outputs = [self.module(shard.columns) for _, shard in self._shards_of(batch)]
        return {name: torch.cat([output[name] for output in outputs]) for name in outputs[0]}

    def _shards_of(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """This worker's shards and their numbers. The borders of workers' shares are borders of shards too."""
        first = batch.global_rows * self.mine.start // self.shards
        for shard in self.mine:
            start, stop = (batch.global_rows * border // self.shards - first for border in (shard, shard + 1))
            # In memory of their own: kernels may choose by alignment and strides, which differ with the share.
            columns = {
                name: column[start:stop].clone(memory_format=torch.contiguous_format)
                for name, column in batch.columns.items()
            }
            yield shard, Batch(columns=columns, rows=stop - start, global_rows=batch.global_rows)

    def _gradient(self, loss: Tensor) -> Tensor:
        # Not `backward`: it would wake the hooks by which strategies reduce gradients.
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in gradients])

    def _in_shard_order(self, rows: Sequence[Tensor]) -> Tensor:
        """The sum over the shards of all workers, of whose vectors `rows` are this worker's, on every worker.

        The strategy needs no gathering for it: where all workers but one put zeros, its sum is a copy, in whatever
        order it adds. Only a zero may lose its sign, and beginning with a positive one takes it from all of them.
        """
        total = torch.zeros_like(rows[0])
        width = max(1, CHUNK_BYTES // (self.shards * total.element_size()))
        for chunk in (slice(start, start + width) for start in range(0, len(total), width)):
            every = total.new_zeros(self.shards, len(total[chunk]))
            for shard, row in zip(self.mine, rows, strict=True):
                every[shard] = row[chunk]
            for shard_row in self.run.strategy.sum(every):
                total[chunk] += shard_row
        return total


@contextlib.contextmanager
def exact_arithmetic(device: torch.device) -> Iterator[None]:
    """Kernels that give equal inputs equal results, in this block.

    On CPUs: one thread, because how a kernel cuts its work among threads decides the order in which it adds. On GPUs:
    the kernels that torch knows to be deterministic.
    """
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may not be deterministic
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def _running_statistics(module: nn.Module) -> list[Tensor]:
    """What layers such as batch normalisation keep of the batches they saw; counts of batches among it."""
    layers = (layer for layer in module.modules() if getattr(layer, "running_mean", None) is not None)
    return [buffer for layer in layers for buffer in layer.buffers(recurse=False)]


def _restore(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def _split(numbers: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `numbers`, one of the shape of each of `like`."""
    parts = torch.split(numbers, [tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]
