"""What a feature type is: a section of the config that knows how to summarise, encode, learn and predict its column.

A type lives in one file and is registered in `core.features`. Its classes are declarations first: importing them
brings in neither torch nor pandas, so that a config can be checked in milliseconds; what needs torch imports it
when called.

A column goes through ``parse`` (raw values to typed ones, null where missing) → ``summary`` (over training rows) →
``metadata`` (plain JSON) → ``encode`` (typed values to what the loader hands to the model). Each step is a pure
function of the rows it gets, so how a dataset is partitioned cannot change a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from core.config.fields import setting
from core.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor, nn

Metadata = dict[str, Any]
Goal = Literal["maximize", "minimize"]


class Unparsable(DataError):
    """A value that its feature type cannot read.

    `row` counts from 0 inside the column that was parsed; the caller, who knows where the column came from, turns
    it into a `DataError` that names the dataset's row.
    """

    def __init__(self, row: int, found: Any, expected: str, hint: str = "") -> None:
        self.row = row
        super().__init__("unparsable value", found=found, expected=expected, hint=hint)


class Summary(ABC):
    """What is known of a column's training rows. Mergeable in any grouping, exact to the last bit."""

    @abstractmethod
    def update(self, values: pa.Array) -> None:
        """Take in parsed values, nulls among them."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Take in another summary of the same class."""

    @abstractmethod
    def finish(self) -> Metadata:
        """Plain JSON: everything `encode`, the modules and the predictions need.

        Raises:
            DataError: the rows cannot be learnt from (all null, one class only, …). The caller adds the feature.
        """


@attrs.frozen(kw_only=True)
class Feature(ABC):
    """A column of the dataset."""

    type: ClassVar[str]
    summarises: ClassVar[Literal["training", "all"]] = "training"
    """Which rows `summary` sees. Output classes come from all rows, everything else from training rows alone."""
    takes_dictionaries: ClassVar[bool] = False
    """Whether `encode` takes a dictionary array, if no value is missing: repeated ones are then looked up once."""

    name: str = setting(doc="Name of the feature, unique in the config; also its column unless `column` is given.")
    column: str | None = setting(None, doc="Name of the dataset's column, when it differs from the feature's name.")

    # Every subclass declares `preprocessing`, a section with at least `missing_value_strategy`.

    @property
    def source(self) -> str:
        """The dataset's column."""
        return self.column or self.name

    @abstractmethod
    def parse(self, column: pa.ChunkedArray) -> pa.Array:
        """Typed values, null where missing. Text formats arrive as strings, others in their own type.

        Raises:
            Unparsable: the first value that is not of this type.
        """

    @abstractmethod
    def summary(self) -> Summary:
        """An empty summary."""

    @abstractmethod
    def encode(self, values: pa.Array, metadata: Metadata) -> pa.Array:
        """Parsed values → the stored column, of type `storage(metadata)`, without nulls (they are filled here)."""

    @abstractmethod
    def storage(self, metadata: Metadata) -> pa.DataType:
        """float32, int32, bool, or a fixed-size list of int32."""


@attrs.frozen(kw_only=True)
class InputFeature(Feature):
    """A column the model reads. Subclasses declare `encoder`."""

    tied: str | None = setting(None, doc="Name of an input feature of the same type whose encoder is shared.")

    @abstractmethod
    def build_encoder(self, metadata: Metadata) -> nn.Module:
        """A module from this feature's batch column, (rows,) or (rows, width), to (rows, `output_size`)."""


@attrs.frozen(kw_only=True)
class OutputFeature(Feature):
    """A column the model predicts. Subclasses declare `decoder` and `loss` (a section with `weight`)."""

    metric_goals: ClassVar[dict[str, Goal]]
    """Every metric `evaluate` returns, `loss` included, and which way is better."""

    @abstractmethod
    def build_decoder(self, metadata: Metadata, input_size: int) -> nn.Module:
        """A module from the combiner's (rows, `input_size`) to raw outputs: (rows,) or (rows, classes)."""

    @abstractmethod
    def row_losses(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> Tensor:
        """The loss of each row, (rows,), float32, without the section's `weight`."""

    @abstractmethod
    def evaluate(self, outputs: Tensor, targets: Tensor, metadata: Metadata) -> dict[str, float]:
        """Metrics over a whole split, in the units of the dataset; NaN where one is undefined on these rows."""

    @abstractmethod
    def predictions(self, outputs: Tensor, metadata: Metadata) -> dict[str, pa.Array]:
        """Column suffix (`predictions`, `probability`, `probabilities_<class>`) to values, one a row."""
