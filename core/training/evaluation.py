"""Loss and metrics of a whole split, every row once, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from core.features.base import OutputFeature
from core.loader import Batch, BatchPlan, Loader
from core.strategy import Strategy

COMBINED = "combined"


def forward_split(
    forward: Callable[[Batch], dict[str, Tensor]],
    loader: Loader,
    plan: BatchPlan,
    features: Sequence[OutputFeature],
    strategy: Strategy,
    *,
    rows: int,
    advance: Callable[[int], None] | None = None,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Raw outputs and targets of each output feature over a split, on CPU, in dataset order, on every worker.

    `forward` gives the raw outputs of this worker's share of a batch.
    """
    gathered: dict[str, tuple[Tensor, Tensor]] = {}
    first = 0
    strategy.model.eval()
    with torch.inference_mode():
        for batch in loader.batches(plan, epoch=0):
            share = plan.share(batch.global_rows)
            outputs = forward(batch)
            for feature in features:
                output, target = outputs[feature.name].float(), batch.columns[feature.name]
                if feature.name not in gathered:
                    gathered[feature.name] = (
                        output.new_zeros((rows, *output.shape[1:])),
                        target.new_zeros((rows, *target.shape[1:])),
                    )
                for whole, part in zip(gathered[feature.name], (output, target), strict=True):
                    whole[first + share.start : first + share.stop] += part  # a negative zero becomes a positive one
            first += batch.global_rows
            if advance is not None:
                advance(batch.global_rows)
    strategy.model.train()
    # Each worker filled in its own rows and left zeros elsewhere, so the sum over workers is the whole split.
    return {
        name: (strategy.sum(outputs).cpu(), _sum_exactly(strategy, targets).cpu())
        for name, (outputs, targets) in gathered.items()
    }


def _sum_exactly(strategy: Strategy, targets: Tensor) -> Tensor:
    if targets.dtype == torch.bool:
        return strategy.sum(targets.int()).bool()  # not bytes, which not every library can add
    return strategy.sum(targets)


def score(
    gathered: Mapping[str, tuple[Tensor, Tensor]],
    features: Sequence[OutputFeature],
    metadata: Mapping[str, dict[str, Any]],
) -> dict[str, dict[str, float]]:
    """``{feature: {metric: value}}`` and ``combined``, whose loss is the weighted sum that training minimises."""
    scores: dict[str, dict[str, float]] = {}
    combined = 0.0
    for feature in features:
        scores[feature.name] = feature.evaluate(*gathered[feature.name], metadata[feature.name])
        combined += loss_weight(feature) * scores[feature.name]["loss"]
    scores[COMBINED] = {"loss": combined}
    return scores


def loss_weight(feature: OutputFeature) -> float:
    """The weight of a feature's loss in the combined loss."""
    weight: float = feature.loss.weight  # type: ignore[attr-defined]  # every output type declares `loss`
    return weight
