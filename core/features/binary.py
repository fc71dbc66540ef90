"""Truth values, and any column of two values: as input a 0 or a 1; as output a probability."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from core.config.fields import at_least_0, fraction, optional, positive, setting
from core.errors import DataError
from core.features import columns
from core.features.base import Feature, Goal, InputFeature, Metadata, OutputFeature, Summary
from core.model.options import DecoderLayers, Dense, Passthrough

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor, nn

FALSE_WORDS = ("false", "no", "n", "f", "off", "0")
TRUE_WORDS = ("true", "yes", "y", "t", "on", "1")
Strategy = Literal["fill_with_const", "fill_with_mode", "fill_with_false", "bfill", "ffill", "drop_row"]

UNSEEN = "<UNK>"
"""Stands for the second value of an input column that has only one."""
_KEPT_LABELS = 100
"""Labels a summary keeps: the first in order, so that any grouping keeps the same ones, with exact counts."""


@attrs.frozen(kw_only=True)
class BinaryPreprocessing:
    """How the two values are read."""

    missing_value_strategy: Strategy = setting("fill_with_false", doc="What happens where a value is missing.")
    fill_value: bool = setting(False, doc="The value that `fill_with_const` puts in.")
    fallback_true_label: str | None = setting(
        None, doc="Which of two values is true, where they are not plainly true and false."
    )


@attrs.frozen(kw_only=True)
class BinaryOutputPreprocessing(BinaryPreprocessing):
    """How the two values to predict are read."""

    missing_value_strategy: Strategy = setting("drop_row", doc="What happens where a value is missing.")


@attrs.frozen(kw_only=True)
class BinaryWeightedCrossEntropy:
    """Cross entropy of the probability of true."""

    weight: float = setting(1.0, doc="Factor of this loss in the sum over output features.", check=at_least_0)
    positive_class_weight: float | None = setting(
        None, doc="Factor of the loss of true rows; null for 1.", check=optional(positive)
    )


@attrs.frozen(kw_only=True)
class BinaryRegressor(DecoderLayers):
    """A linear projection to one log-odds, after fully connected layers."""


ENCODERS = {"passthrough": Passthrough, "dense": Dense}


class BinarySummary(Summary):
    """Which labels occur, and how often."""

    def __init__(self, preprocessing: BinaryPreprocessing, *, needs_both: bool) -> None:
        self.preprocessing = preprocessing
        self.needs_both = needs_both
        self.counts: Counter[str] = Counter()

    def update(self, values: pa.Array) -> None:
        counts, _ = columns.counts(values)
        self._add(counts)

    def merge(self, other: BinarySummary) -> None:
        self._add(other.counts)

    def _add(self, counts: Counter[str]) -> None:
        self.counts.update(counts)
        for label in sorted(self.counts)[_KEPT_LABELS:]:
            del self.counts[label]

    def finish(self) -> Metadata:
        if not self.counts:
            raise DataError("has no values", expected="two values", hint="All rows of the column are empty.")
        labels = self._labels()
        match self.preprocessing.missing_value_strategy:
            case "fill_with_mode":
                true = _spellings(labels)[1]
                trues = sum(count for label, count in self.counts.items() if _folded(label, labels) in true)
                fill_value = 2 * trues > self.counts.total()
            case "fill_with_false":
                fill_value = False
            case _:
                fill_value = self.preprocessing.fill_value
        return {"bool2str": labels, "fill_value": fill_value}

    def _labels(self) -> list[str]:
        """The labels of false and true, each in its most frequent spelling."""
        found, fallback = columns.by_frequency(self.counts), self.preprocessing.fallback_true_label
        falses = [label for label in found if label.lower() in FALSE_WORDS]
        trues = [label for label in found if label.lower() in TRUE_WORDS]
        plain = len(falses) + len(trues) == len(found)
        if len(found) > 2 and not plain:
            raise DataError(
                "has more than two values",
                found=sorted(found)[:10],
                expected="two values",
                hint="Use `type: category` for more than two classes.",
            )
        if self.needs_both and (not (falses and trues) if plain else len(found) < 2):
            raise DataError(
                "has one class only",
                found=found[0],
                expected="two values",
                hint="There is nothing to learn where every row is the same.",
            )
        if plain:
            return [*(falses or [_counterpart(trues[0])])[:1], *(trues or [_counterpart(falses[0])])[:1]]
        if fallback is None:
            return sorted(found, key=_order) if len(found) == 2 else [*found, UNSEEN]
        others = [label for label in found if label != fallback]
        if len(others) == 2:
            raise DataError(
                "does not have the value that `fallback_true_label` names",
                found=fallback,
                expected=" or ".join(map(repr, sorted(found))),
            )
        return [others[0] if others else UNSEEN, fallback]


def _counterpart(word: str) -> str:
    """The other label of a column that is plainly true, or plainly false, in every row."""
    words, opposites = (FALSE_WORDS, TRUE_WORDS) if word.lower() in FALSE_WORDS else (TRUE_WORDS, FALSE_WORDS)
    opposite = opposites[words.index(word.lower())]
    return opposite.title() if word.istitle() else opposite


def _order(label: str) -> tuple[int, float, str]:
    """Sorts two labels, the true one last: the word that says so, else the larger number, else the later text."""
    try:
        return 1, float(label), label
    except ValueError:
        word = label.lower()
        return (0 if word in FALSE_WORDS else 2 if word in TRUE_WORDS else 1), 0.0, label


def _spellings(labels: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is read as false and as true: any plain word where the labels are plain, else the labels alone."""
    false, true = labels
    if false.lower() in FALSE_WORDS and true.lower() in TRUE_WORDS:
        return FALSE_WORDS, TRUE_WORDS
    return (false,), (true,)


def _folded(label: str, labels: list[str]) -> str:
    return label.lower() if _spellings(labels)[0] is FALSE_WORDS else label


class BinaryColumn(Feature):
    """What binary features have in common as input and as output."""

    __slots__ = ()
    type: ClassVar[str] = "binary"
    preprocessing: BinaryPreprocessing

    def parse(self, column: pa.ChunkedArray) -> pa.Array:
        """Labels as text: which of them is true is known only once all rows have been seen."""
        return columns.texts(column)

    def encode(self, values: pa.Array, metadata: Metadata) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        labels = metadata["bool2str"]
        false, true = _spellings(labels)
        folded = pc.utf8_lower(values) if false is FALSE_WORDS else values
        known = pc.is_in(folded, pa.array(false + true))
        if (row := pc.index(pc.or_(known, pc.is_null(values)), False).as_py()) >= 0:
            raise DataError(
                "has a value that is neither of the two it was trained on",
                found=values[row].as_py(),
                expected=" or ".join(map(repr, labels)),
            )
        truths = pc.is_in(folded, pa.array(true))
        return pc.if_else(pc.is_null(values), metadata["fill_value"], truths)

    def storage(self, metadata: Metadata) -> pa.DataType:
        import pyarrow as pa

        return pa.bool_()


@attrs.frozen(kw_only=True)
class BinaryInput(BinaryColumn, InputFeature):
    """A truth value the model reads."""

    preprocessing: BinaryPreprocessing = setting(factory=BinaryPreprocessing, doc="How the two values are read.")
    encoder: Passthrough | Dense = setting(
        factory=Passthrough,
        doc="What turns the value into a vector.",
        choices=ENCODERS,
        default_choice="passthrough",
    )

    def summary(self) -> BinarySummary:
        return BinarySummary(self.preprocessing, needs_both=False)

    def build_encoder(self, metadata: Metadata) -> nn.Module:
        from core.model.modules import scalar_encoder

        return scalar_encoder(self.encoder)


@attrs.frozen(kw_only=True)
class BinaryOutput(BinaryColumn, OutputFeature):
    """A truth value the model predicts."""

    metric_goals: ClassVar[dict[str, Goal]] = {
        "loss": "minimize",
        "accuracy": "maximize",
        "roc_auc": "maximize",
        "precision": "maximize",
        "recall": "maximize",
        "specificity": "maximize",
    }

    preprocessing: BinaryOutputPreprocessing = setting(
        factory=BinaryOutputPreprocessing, doc="How the two values are read."
    )
    decoder: BinaryRegressor = setting(
        factory=BinaryRegressor,
        doc="What turns the combined inputs into a probability.",
        choices={"regressor": BinaryRegressor},
        default_choice="regressor",
    )
    loss: BinaryWeightedCrossEntropy = setting(
        factory=BinaryWeightedCrossEntropy,
        doc="What is minimised.",
        choices={"binary_weighted_cross_entropy": BinaryWeightedCrossEntropy},
        default_choice="binary_weighted_cross_entropy",
    )
    threshold: float = setting(0.5, doc="Predict true from this probability on.", check=fraction)

    def summary(self) -> BinarySummary:
        return BinarySummary(self.preprocessing, needs_both=True)

    def build_decoder(self, metadata: Metadata, input_size: int) -> nn.Module:
        from core.model.modules import ScalarDecoder

        return ScalarDecoder(self.decoder, input_size)

    def row_losses(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> Tensor:
        import torch
        from torch.nn import functional

        weight = self.loss.positive_class_weight
        return functional.binary_cross_entropy_with_logits(
            outputs.float(),
            targets.float(),
            pos_weight=None if weight is None else torch.tensor(weight, device=outputs.device),
            reduction="none",
        )

    def evaluate(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> dict[str, float]:
        from torchmetrics.functional import classification as metrics

        if not len(targets):
            return dict.fromkeys(self.metric_goals, float("nan"))
        probabilities, labels = outputs.float().sigmoid(), targets.long()
        predicted = (probabilities >= self.threshold).long()
        values = {
            "loss": self.row_losses(outputs, targets, metadata).double().mean(),
            "accuracy": metrics.binary_accuracy(predicted, labels, validate_args=False),
            "roc_auc": (
                metrics.binary_auroc(probabilities, labels, validate_args=False)
                if labels.min() != labels.max()
                else float("nan")
            ),
            "precision": metrics.binary_precision(predicted, labels, validate_args=False),
            "recall": metrics.binary_recall(predicted, labels, validate_args=False),
            "specificity": metrics.binary_specificity(predicted, labels, validate_args=False),
        }
        return {name: float(value) for name, value in values.items()}

    def predictions(self, outputs: Tensor, metadata: Metadata) -> dict[str, pa.Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        false, true = metadata["bool2str"]
        log_odds = outputs.float()
        chosen = log_odds.sigmoid() >= self.threshold
        truths = pa.array(chosen.numpy())
        plain = (false.lower(), true.lower()) == ("false", "true")
        values = columns.labels([false, true])
        return {
            "predictions": truths if plain else pc.if_else(truths, values[1], values[0]),
            "probability": pa.array(log_odds.where(chosen, -log_odds).sigmoid().numpy()),
            f"probabilities_{false}": pa.array((-log_odds).sigmoid().numpy()),
            f"probabilities_{true}": pa.array(log_odds.sigmoid().numpy()),
        }
