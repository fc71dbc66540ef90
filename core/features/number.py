"""Numbers: as input scaled and passed on, or through dense layers; as output by regression."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from core.config.fields import at_least_0, optional, positive, setting
from core.errors import DataError
from core.features import columns
from core.features.base import Feature, Goal, InputFeature, Metadata, OutputFeature, Summary
from core.model.options import DecoderLayers, Dense, Passthrough

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from torch import Tensor, nn

Normalization = Literal["zscore", "minmax", "log1p", "iqr"]
Strategy = Literal["fill_with_const", "fill_with_mean", "fill_with_mode", "bfill", "ffill", "drop_row"]


@attrs.frozen(kw_only=True)
class NumberPreprocessing:
    """How numbers are read and scaled."""

    missing_value_strategy: Strategy = setting("fill_with_const", doc="What happens where a value is missing.")
    fill_value: float = setting(0.0, doc="The value that `fill_with_const` puts in, in the units of the dataset.")
    normalization: Normalization | None = setting(
        "zscore",
        doc="How values are scaled; null leaves them as they are. Inputs under zscore or iqr are limited softly.",
    )


@attrs.frozen(kw_only=True)
class NumberOutputPreprocessing(NumberPreprocessing):
    """How numbers to predict are read and scaled."""

    missing_value_strategy: Strategy = setting("drop_row", doc="What happens where a value is missing.")


@attrs.frozen(kw_only=True)
class NumberLoss:
    """What is minimised, in the scale of `normalization`."""

    weight: float = setting(1.0, doc="Factor of this loss in the sum over output features.", check=at_least_0)


@attrs.frozen(kw_only=True)
class MeanSquaredError(NumberLoss):
    """The squared error."""


@attrs.frozen(kw_only=True)
class MeanAbsoluteError(NumberLoss):
    """The absolute error."""


@attrs.frozen(kw_only=True)
class Huber(NumberLoss):
    """The squared error where it is small, the absolute error where it is large."""

    delta: float = setting(1.0, doc="Where one turns into the other.", check=positive)


ENCODERS = {"passthrough": Passthrough, "dense": Dense}
LOSSES = {"mean_squared_error": MeanSquaredError, "mean_absolute_error": MeanAbsoluteError, "huber": Huber}


class NumberSummary(Summary):
    """Moments and range; the values themselves only where quartiles or the mode are asked for."""

    def __init__(self, preprocessing: NumberPreprocessing) -> None:
        from core.data.exact import ExactMoments

        self.preprocessing = preprocessing
        self.moments = ExactMoments()
        self.values: Counter[float] = Counter()

    def update(self, values: pa.Array) -> None:
        import pyarrow.compute as pc

        present = values.drop_null()
        self.moments.update(present.to_numpy())
        if self.preprocessing.normalization == "iqr" or self.preprocessing.missing_value_strategy == "fill_with_mode":
            found = pc.value_counts(present)
            self.values.update(
                dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))
            )

    def merge(self, other: NumberSummary) -> None:
        self.moments.merge(other.moments)
        self.values.update(other.values)

    def finish(self) -> Metadata:
        if not self.moments.count:
            raise DataError("has no values", expected="at least one number", hint="All rows of the column are empty.")
        moments = self.moments
        # Adding 0.0 turns -0.0 into 0.0: which of the two is the minimum depends on the order of rows.
        metadata = {"mean": moments.mean(), "std": moments.std(), "min": moments.min + 0.0, "max": moments.max + 0.0}
        if self.preprocessing.normalization == "log1p" and moments.min <= -1:
            raise DataError(
                "has values that log1p is not defined for", found=moments.min, expected="only values above -1"
            )
        if self.preprocessing.normalization == "iqr":
            metadata |= self._quartiles()
        match self.preprocessing.missing_value_strategy:
            case "fill_with_mean":
                metadata["fill_value"] = moments.mean()
            case "fill_with_mode":
                metadata["fill_value"] = min(self.values, key=lambda value: (-self.values[value], value)) + 0.0
            case _:
                metadata["fill_value"] = self.preprocessing.fill_value
        return metadata

    def _quartiles(self) -> dict[str, float]:
        import numpy as np

        values = np.array(sorted(self.values), np.float64)
        repeats = np.array([self.values[value] for value in values.tolist()])
        quartiles = np.quantile(np.repeat(values, repeats), (0.25, 0.5, 0.75))
        return dict(zip(("q1", "median", "q3"), (quartiles + 0.0).tolist(), strict=True))


class NumberColumn(Feature):
    """What number features have in common as input and as output."""

    __slots__ = ()
    type: ClassVar[str] = "number"

    preprocessing: NumberPreprocessing

    def parse(self, column: pa.ChunkedArray) -> pa.Array:
        return columns.numbers(column)

    def summary(self) -> NumberSummary:
        return NumberSummary(self.preprocessing)

    def encode(self, values: pa.Array, metadata: Metadata) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        known = values.fill_null(metadata["fill_value"]).to_numpy()
        with np.errstate(over="ignore"):
            encoded = self._normalize(known, metadata).astype(np.float32)
        if not np.isfinite(encoded).all():
            found = float(known[~np.isfinite(encoded)][0])
            raise DataError(
                "has a value that cannot be scaled to a 32-bit float",
                found=found,
                expected="only values above -1" if self.preprocessing.normalization == "log1p" else "",
            )
        return pa.array(encoded)

    def storage(self, metadata: Metadata) -> pa.DataType:
        import pyarrow as pa

        return pa.float32()

    def _normalize(self, values: np.ndarray, metadata: Metadata) -> np.ndarray:
        import numpy as np

        if self.preprocessing.normalization == "log1p":
            with np.errstate(divide="ignore", invalid="ignore"):
                scaled: np.ndarray = np.log1p(values)
                return scaled
        shift, scale = self._shift_and_scale(metadata)
        return (values - shift) / scale

    def _denormalize(self, values: Tensor, metadata: Metadata) -> Tensor:
        """Back to the dataset's units, in float64."""
        if self.preprocessing.normalization == "log1p":
            return values.double().expm1()
        shift, scale = self._shift_and_scale(metadata)
        return values.double() * scale + shift

    def _shift_and_scale(self, metadata: Metadata) -> tuple[float, float]:
        match self.preprocessing.normalization:
            case "zscore":
                shift, scale = metadata["mean"], metadata["std"]
            case "minmax":
                shift, scale = metadata["min"], metadata["max"] - metadata["min"]
            case "iqr":
                shift, scale = metadata["median"], metadata["q3"] - metadata["q1"]
            case _:
                shift, scale = 0.0, 1.0
        return shift, scale or 1.0  # a column without spread becomes 0


@attrs.frozen(kw_only=True)
class NumberInput(NumberColumn, InputFeature):
    """A number the model reads."""

    preprocessing: NumberPreprocessing = setting(factory=NumberPreprocessing, doc="How values are read and scaled.")
    encoder: Passthrough | Dense = setting(
        factory=Passthrough,
        doc="What turns the number into a vector.",
        choices=ENCODERS,
        default_choice="passthrough",
    )

    def build_encoder(self, metadata: Metadata) -> nn.Module:
        from core.model.modules import scalar_encoder

        return scalar_encoder(self.encoder, limited=self.preprocessing.normalization in ("zscore", "iqr"))


def _is_range(_: Any, field: attrs.Attribute[Any], value: tuple[float, ...]) -> None:
    if len(value) != 2 or value[0] > value[1]:
        raise ValueError("needs two numbers, the smaller one first")


@attrs.frozen(kw_only=True)
class Regressor(DecoderLayers):
    """A linear projection to one number, after fully connected layers."""


@attrs.frozen(kw_only=True)
class NumberOutput(NumberColumn, OutputFeature):
    """A number the model predicts."""

    metric_goals: ClassVar[dict[str, Goal]] = {
        "loss": "minimize",
        "mean_squared_error": "minimize",
        "mean_absolute_error": "minimize",
        "root_mean_squared_error": "minimize",
        "root_mean_squared_percentage_error": "minimize",
        "mean_absolute_percentage_error": "minimize",
        "r2": "maximize",
    }

    preprocessing: NumberOutputPreprocessing = setting(
        factory=NumberOutputPreprocessing, doc="How values are read and scaled."
    )
    decoder: Regressor = setting(
        factory=Regressor,
        doc="What turns the combined inputs into a number.",
        choices={"regressor": Regressor},
        default_choice="regressor",
    )
    loss: NumberLoss = setting(
        factory=MeanSquaredError, doc="What is minimised.", choices=LOSSES, default_choice="mean_squared_error"
    )
    clip: tuple[float, float] | None = setting(
        None,
        doc="Smallest and largest prediction, in the units of the dataset; null for no limits.",
        check=optional(_is_range),
    )

    def build_decoder(self, metadata: Metadata, input_size: int) -> nn.Module:
        from core.model.modules import ScalarDecoder

        return ScalarDecoder(self.decoder, input_size)

    def row_losses(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> Tensor:
        from torch.nn import functional

        outputs = outputs.float()
        match self.loss:
            case Huber(delta=delta):
                return functional.huber_loss(outputs, targets, reduction="none", delta=delta)
            case MeanAbsoluteError():
                return functional.l1_loss(outputs, targets, reduction="none")
            case _:
                return functional.mse_loss(outputs, targets, reduction="none")

    def evaluate(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> dict[str, float]:
        from torchmetrics import functional as metrics

        if not len(targets):
            return dict.fromkeys(self.metric_goals, float("nan"))
        predicted = self._predicted(outputs, metadata)
        actual = self._denormalize(targets, metadata)
        squared = metrics.mean_squared_error(predicted, actual)
        nonzero = actual != 0  # the relative error of a zero is not defined
        relative = predicted[nonzero] / actual[nonzero] - 1
        values = {
            "loss": self.row_losses(outputs, targets, metadata).double().mean(),
            "mean_squared_error": squared,
            "mean_absolute_error": metrics.mean_absolute_error(predicted, actual),
            "root_mean_squared_error": squared.sqrt(),
            "root_mean_squared_percentage_error": relative.square().mean().sqrt(),
            "mean_absolute_percentage_error": metrics.mean_absolute_percentage_error(
                predicted[nonzero], actual[nonzero]
            ),
            "r2": metrics.r2_score(predicted, actual) if len(actual) > 1 and actual.std() > 0 else float("nan"),
        }
        return {name: float(value) for name, value in values.items()}

    def predictions(self, outputs: Tensor, metadata: Metadata) -> dict[str, pa.Array]:
        import pyarrow as pa

        return {"predictions": pa.array(self._predicted(outputs, metadata).numpy())}

    def _predicted(self, outputs: Tensor, metadata: Metadata) -> Tensor:
        values = self._denormalize(outputs, metadata)
        return values if self.clip is None else values.clamp(*self.clip)
