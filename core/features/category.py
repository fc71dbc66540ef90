"""Categories: as input embedded or one-hot; as output one class out of several."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from core.config.fields import at_least_0, at_least_1, dropout_rate, setting
from core.errors import ConfigError, DataError
from core.features import columns
from core.features.base import Feature, Goal, InputFeature, Metadata, OutputFeature, Summary
from core.model.options import DecoderLayers

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor, nn

UNKNOWN = "<UNK>"
Strategy = Literal["fill_with_const", "fill_with_mode", "bfill", "ffill", "drop_row"]


@attrs.frozen(kw_only=True)
class CategoryPreprocessing:
    """How categories are read."""

    missing_value_strategy: Strategy = setting("fill_with_const", doc="What happens where a value is missing.")
    fill_value: str = setting(UNKNOWN, doc="The category that `fill_with_const` puts in.")
    lowercase: bool = setting(False, doc="Whether upper case is read as lower case.")
    most_common: int = setting(10000, doc="Most categories kept; rarer ones become <UNK>.", check=at_least_1)


@attrs.frozen(kw_only=True)
class CategoryOutputPreprocessing:
    """How classes to predict are read. All of them are kept."""

    missing_value_strategy: Strategy = setting("drop_row", doc="What happens where a value is missing.")
    fill_value: str = setting(UNKNOWN, doc="The class that `fill_with_const` puts in.")
    lowercase: bool = setting(False, doc="Whether upper case is read as lower case.")


@attrs.frozen(kw_only=True)
class Embedding:
    """A learnt vector for each category."""

    embedding_size: int = setting(
        50, doc="Largest size of the vectors; never more than there are categories.", check=at_least_1
    )
    dropout: float = setting(0.0, doc="Dropout on the vectors.", check=dropout_rate)


@attrs.frozen(kw_only=True)
class OneHot:
    """A vector of zeros with a one at the category's place."""


ENCODERS = {"dense": Embedding, "sparse": OneHot, "onehot": OneHot}


@attrs.frozen(kw_only=True)
class Classifier(DecoderLayers):
    """A linear projection to one number a class, after fully connected layers."""


@attrs.frozen(kw_only=True)
class SoftmaxCrossEntropy:
    """Cross entropy of the class distribution."""

    weight: float = setting(1.0, doc="Factor of this loss in the sum over output features.", check=at_least_0)
    class_weights: tuple[float, ...] | dict[str, float] | None = setting(
        None, doc="Factor of each class: by name, or in the order of classes, most frequent first."
    )


class CategorySummary(Summary):
    """How often each category occurs."""

    def __init__(self, preprocessing: CategoryPreprocessing | CategoryOutputPreprocessing) -> None:
        self.preprocessing = preprocessing
        self.counts: Counter[str] = Counter()
        self.nulls = 0

    def update(self, values: pa.Array) -> None:
        counts, nulls = columns.counts(values)
        self.counts.update(counts)
        self.nulls += nulls

    def merge(self, other: CategorySummary) -> None:
        self.counts.update(other.counts)
        self.nulls += other.nulls

    def finish(self) -> Metadata:
        if not self.counts:
            raise DataError("has no values", expected="at least one category", hint="All rows of the column are empty.")
        counts, fill_value = self.counts.copy(), self.preprocessing.fill_value
        if self.preprocessing.missing_value_strategy == "fill_with_mode":
            fill_value = columns.by_frequency(counts)[0]
        if self.nulls:
            counts[fill_value] += self.nulls
        return {"vocabulary": self._vocabulary(counts), "fill_value": fill_value}

    def _vocabulary(self, counts: Counter[str]) -> list[str]:
        match self.preprocessing:
            case CategoryPreprocessing(most_common=limit):
                counts.pop(UNKNOWN, None)
                return [UNKNOWN, *columns.by_frequency(counts)[:limit]]
            case _ if len(counts) > 1:
                return columns.by_frequency(counts)
        raise DataError(
            "has one class only",
            found=next(iter(counts)),
            expected="at least two classes",
            hint="There is nothing to learn where every row is the same.",
        )


class CategoryColumn(Feature):
    """What category features have in common as input and as output."""

    __slots__ = ()
    type: ClassVar[str] = "category"
    preprocessing: CategoryPreprocessing | CategoryOutputPreprocessing

    def parse(self, column: pa.ChunkedArray) -> pa.Array:
        import pyarrow.compute as pc

        values = columns.texts(column)
        return pc.utf8_lower(values) if self.preprocessing.lowercase else values

    def summary(self) -> CategorySummary:
        return CategorySummary(self.preprocessing)

    def storage(self, metadata: Metadata) -> pa.DataType:
        import pyarrow as pa

        return pa.int32()


@attrs.frozen(kw_only=True)
class CategoryInput(CategoryColumn, InputFeature):
    """A category the model reads."""

    takes_dictionaries: ClassVar[bool] = True
    preprocessing: CategoryPreprocessing = setting(factory=CategoryPreprocessing, doc="How categories are read.")
    encoder: Embedding | OneHot = setting(
        factory=Embedding, doc="What turns the category into a vector.", choices=ENCODERS, default_choice="dense"
    )

    def encode(self, values: pa.Array, metadata: Metadata) -> pa.Array:
        known = values.fill_null(metadata["fill_value"]) if values.null_count else values
        return columns.codes(known, metadata["vocabulary"]).fill_null(0)

    def build_encoder(self, metadata: Metadata) -> nn.Module:
        from core.model import modules

        categories = len(metadata["vocabulary"])
        match self.encoder:
            case Embedding(embedding_size=size, dropout=dropout):
                return modules.CategoryEmbedding(categories, min(size, categories), dropout)
            case _:
                return modules.OneHot(categories)


@attrs.frozen(kw_only=True)
class CategoryOutput(CategoryColumn, OutputFeature):
    """A class the model predicts."""

    summarises: ClassVar[Literal["training", "all"]] = "all"
    metric_goals: ClassVar[dict[str, Goal]] = {
        "loss": "minimize",
        "accuracy": "maximize",
        "accuracy_macro": "maximize",
        "hits_at_k": "maximize",
        "roc_auc": "maximize",
    }

    preprocessing: CategoryOutputPreprocessing = setting(
        factory=CategoryOutputPreprocessing, doc="How classes are read."
    )
    decoder: Classifier = setting(
        factory=Classifier,
        doc="What turns the combined inputs into class scores.",
        choices={"classifier": Classifier},
        default_choice="classifier",
    )
    loss: SoftmaxCrossEntropy = setting(
        factory=SoftmaxCrossEntropy,
        doc="What is minimised.",
        choices={"softmax_cross_entropy": SoftmaxCrossEntropy},
        default_choice="softmax_cross_entropy",
    )
    top_k: int = setting(3, doc="The k of the metric hits_at_k.", check=at_least_1)

    def encode(self, values: pa.Array, metadata: Metadata) -> pa.Array:
        import pyarrow.compute as pc

        known = values.fill_null(metadata["fill_value"])
        encoded = columns.codes(known, metadata["vocabulary"])
        if encoded.null_count:
            unseen = known[pc.index(pc.is_null(encoded), True).as_py()].as_py()
            raise DataError(
                "has a class the model was not trained on",
                found=unseen,
                expected=f"one of {', '.join(map(repr, metadata['vocabulary'][:20]))}",
            )
        return encoded

    def build_decoder(self, metadata: Metadata, input_size: int) -> nn.Module:
        from core.model.modules import Decoder

        self._class_weights(metadata["vocabulary"])  # a weight too many shows before training, not in it
        return Decoder(self.decoder, input_size, len(metadata["vocabulary"]))

    def row_losses(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> Tensor:
        import torch
        from torch.nn import functional

        weights = self._class_weights(metadata["vocabulary"])
        return functional.cross_entropy(
            outputs.float(),
            targets.long(),
            weight=None if weights is None else torch.tensor(weights, device=outputs.device),
            reduction="none",
        )

    def _class_weights(self, classes: list[str]) -> list[float] | None:
        given = self.loss.class_weights
        if given is None:
            return None
        path = f"output_features.{self.name}.loss.class_weights"
        if not isinstance(given, dict):
            if len(given) != len(classes):
                raise ConfigError(
                    "needs one weight a class",
                    path=path,
                    found=list(given),
                    expected=f"{len(classes)} weights, for {', '.join(map(repr, classes[:20]))}",
                )
            return list(given)
        if set(given) != set(classes):
            raise ConfigError(
                "needs the name of every class and no other",
                path=path,
                found=sorted(given),
                expected=", ".join(map(repr, sorted(classes)[:20])),
            )
        return [given[name] for name in classes]

    def evaluate(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> dict[str, float]:
        import torch
        from torchmetrics.functional import classification as metrics

        if not len(targets):
            return dict.fromkeys(self.metric_goals, float("nan"))
        targets = targets.long()
        present = torch.unique(targets)
        scores = outputs.float()
        best = scores.topk(min(self.top_k, scores.shape[1])).indices
        kinds: dict[str, Any] = {"num_classes": scores.shape[1], "validate_args": False}
        values: dict[str, Any] = {
            "loss": self.row_losses(outputs, targets, metadata).double().mean(),
            "accuracy": metrics.multiclass_accuracy(scores, targets, average="micro", **kinds),
            "accuracy_macro": metrics.multiclass_accuracy(scores, targets, average="none", **kinds)[present].mean(),
            # The same as torchmetrics' accuracy with `top_k`, which takes twenty times as long.
            "hits_at_k": (best == targets[:, None]).any(1).double().mean(),
            "roc_auc": _macro_auc(scores.softmax(1), targets, present),
        }
        return {name: float(value) for name, value in values.items()}

    def predictions(self, outputs: Tensor, metadata: Metadata) -> dict[str, pa.Array]:
        import pyarrow as pa

        probabilities = outputs.float().softmax(1)
        highest, classes = probabilities.max(1)
        names = columns.labels(metadata["vocabulary"])
        values = {"predictions": names.take(pa.array(classes.numpy())), "probability": pa.array(highest.numpy())}
        for name, column in zip(metadata["vocabulary"], probabilities.T.contiguous().numpy(), strict=True):
            values[f"probabilities_{name}"] = pa.array(column)
        return values


def _macro_auc(probabilities: Tensor, targets: Tensor, present: Tensor) -> float:
    """The mean over the classes that occur of one against the rest; NaN where fewer than two do."""
    from torchmetrics.functional import classification as metrics

    if len(present) < 2:
        return float("nan")
    by_class = probabilities.T.contiguous()
    areas = [
        metrics.binary_auroc(by_class[index], (targets == index).long(), validate_args=False)
        for index in present.tolist()
    ]
    return float(sum(areas) / len(areas))
