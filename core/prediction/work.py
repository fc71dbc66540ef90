"""What is done to one block of a dataset, in whatever process: encode it, run the network over it, make the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from core.backends.placement import Device
from core.errors import CoreError, DataError, ModelError
from core.prediction.threads import Run, lanes, overlapped
from core.run import WEIGHTS, SavedModel

if TYPE_CHECKING:
    import pyarrow as pa
    import torch
    from torch import Tensor

    from core.data.encode import EncodedBlock, Encoding, InputBlock
    from core.prediction.parts import Parts

DEFAULT_BATCH_SIZE = 4096
ROW = "__row__"

Scored = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Raw outputs and targets of each output feature, of the rows that metrics are of."""


@attrs.frozen(kw_only=True)
class Result:
    """What a block came to.

    Attributes:
        table: the predictions, a row for each row that was wanted; None where there are none, or they have
            been written.
        read: rows of the block, wanted or not.
        rows: rows of the table.
        scored: for evaluation, else empty.
    """

    table: pa.Table | None = attrs.field(eq=False)
    read: int
    rows: int
    scored: Scored = attrs.field(factory=dict, eq=False)


Outcome = tuple[int, Result | CoreError]
"""Number of a block, and what it came to."""

Advance = Callable[[int], object]
"""Told of rows as they are predicted."""


@attrs.frozen(kw_only=True)
class Work:
    """A saved model over the blocks of a dataset. It can be pickled, and equal work gives equal tables.

    Attributes:
        index_column: carried over in front of the predictions.
        numbered: add `ROW`, the rows' numbers in their block.
        scoring: gather what metrics are computed of.
    """

    saved: SavedModel
    encoding: Encoding
    device: Device
    batch_size: int = DEFAULT_BATCH_SIZE
    index_column: str | None = None
    numbered: bool = False
    scoring: bool = False

    def outcomes(
        self,
        network: torch.nn.Module,
        blocks: Iterable[tuple[int, InputBlock]],
        *,
        parts: Parts | None = None,
        advance: Advance = lambda rows: None,
    ) -> Iterator[Outcome]:
        """The outcome of each block, in order, until one is an error. A thread reads and encodes ahead.

        Args:
            parts: where to keep the tables, which then are not handed back.
        """
        with lanes(self.device) as run:
            started = overlapped(self._pieces(blocks), lambda piece: self._started(network, run, *piece))
            yield from self._finished(started, parts, advance)

    def _finished(self, started: Iterator[_Started], parts: Parts | None, advance: Advance) -> Iterator[Outcome]:
        tables: list[pa.Table] = []
        scored: list[Scored] = []
        for number, piece, batches in started:
            try:
                if isinstance(piece, CoreError):
                    raise piece
                if not isinstance(piece, int):
                    table, of_targets = self._predicted(piece, batches, advance)
                    tables.append(table)
                    scored.append(of_targets)
                    continue
                result = _joined(tables, scored, piece)
                if parts is not None:
                    parts.write(number, result)
                    result = attrs.evolve(result, table=None)
            except CoreError as error:
                yield number, error
                return
            yield number, result
            tables, scored = [], []

    def encode(self, block: InputBlock, first_row: int = 0) -> Iterator[_Piece | int]:
        """The rows of a block that are wanted, encoded, slice by slice; then how many rows the block has.

        Args:
            first_row: the number of its first row, where it does not know that itself.

        Raises:
            DataError: values cannot be read.
        """
        from core.loader import tensors

        inputs = [feature.name for feature in self.saved.config.input_features]
        carried = [] if self.index_column is None else [self.index_column]
        read = 0
        for table, start, splits in block.slices():
            first = start + (first_row if block.first_row is None else block.first_row)
            encoded = self.encoding(table, first, splits)
            read += table.num_rows
            if len(encoded.rows):
                yield _Piece(
                    encoded=encoded,
                    inputs=tensors(encoded.table.select(inputs)),
                    carried=table.select(carried).take(encoded.rows - first),
                    rows=encoded.rows - first + start,
                )
        yield read

    def _pieces(self, blocks: Iterable[tuple[int, InputBlock]]) -> Iterator[tuple[int, _Piece | int | CoreError]]:
        for number, block in blocks:
            try:
                for piece in self.encode(block):
                    yield number, piece
            except CoreError as error:
                yield number, error
                return

    def _started(self, network: torch.nn.Module, run: Run, number: int, piece: _Piece | int | CoreError) -> _Started:
        """With the raw outputs of its batches, on CPU, which may be computed meanwhile."""
        if not isinstance(piece, _Piece):
            return number, piece, iter(())
        import torch

        device = torch.device(self.device)

        def outputs(start: int) -> dict[str, Tensor]:
            rows = slice(start, start + self.batch_size)
            batch = {name: column[rows].to(device) for name, column in piece.inputs.items()}
            with torch.inference_mode():
                return {name: output.float().cpu() for name, output in network(batch).items()}

        return number, piece, run(outputs, range(0, piece.encoded.table.num_rows, self.batch_size))

    def _predicted(
        self, piece: _Piece, batches: Iterator[dict[str, Tensor]], advance: Advance
    ) -> tuple[pa.Table, Scored]:
        import torch

        parts: list[dict[str, Tensor]] = []
        for part in batches:
            parts.append(part)
            advance(len(next(iter(part.values()))))
        outputs = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if not self.scoring:
            return self._table(outputs, piece), {}
        from core.loader import tensors

        features = self.saved.config.output_features
        counted = torch.from_numpy(piece.encoded.valid & piece.encoded.labelled)
        targets = tensors(piece.encoded.table.select([feature.name for feature in features]))
        scored = {
            feature.name: (outputs[feature.name][counted].numpy(), targets[feature.name][counted].numpy())
            for feature in features
        }
        return self._table(outputs, piece), scored

    def _table(self, outputs: dict[str, Tensor], piece: _Piece) -> pa.Table:
        """``<feature>_predictions`` and its companions; null where the row is not valid."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns: dict[str, Any] = dict(zip(piece.carried.column_names, piece.carried.columns, strict=True))
        valid = None if piece.encoded.valid.all() else pa.array(piece.encoded.valid)
        for feature in self.saved.config.output_features:
            found = feature.predictions(outputs[feature.name], self.saved.metadata[feature.name])
            for suffix, values in found.items():
                name = f"{feature.name}_{suffix}"
                if name in columns:
                    raise DataError(
                        f"two columns of the predictions would be named {name!r}",
                        path="--index-column" if name == self.index_column else "output_features",
                        hint="Rename the column, or the output feature.",
                    )
                columns[name] = values if valid is None else pc.if_else(valid, values, None)
        if self.numbered:
            columns[ROW] = pa.array(piece.rows)
        return pa.table(columns)


@attrs.frozen(kw_only=True)
class _Piece:
    """A slice of a block.

    Attributes:
        inputs: columns of a batch of all its rows.
        carried: the columns to carry over.
        rows: the rows' numbers in the block.
    """

    encoded: EncodedBlock
    inputs: dict[str, Tensor]
    carried: pa.Table
    rows: np.ndarray


_Started = tuple[int, _Piece | int | CoreError, Iterator["dict[str, Tensor]"]]
"""Number of a block; a slice of it, in the end the number of its rows, or what is wrong with it; raw outputs."""


def network_of(saved: SavedModel, device: Device, weights: Mapping[str, Tensor] | None = None) -> torch.nn.Module:
    """The network of a saved model, ready to predict; `weights` where its folder is out of reach.

    Raises:
        ModelError: the weights do not fit.
    """
    from core.model import build

    network = build(saved.config, saved.metadata)
    try:
        network.load_state_dict(saved.weights() if weights is None else weights)
    except RuntimeError as error:
        raise ModelError(
            f"its weights do not fit its config: {error}",
            path=str(saved.path / WEIGHTS),
            hint="Copy the model folder again, or train it again.",
        ) from error
    return network.to(device).eval()


def _joined(tables: Sequence[pa.Table], scored: Sequence[Scored], read: int) -> Result:
    import pyarrow as pa

    if not tables:
        return Result(table=None, read=read, rows=0)
    table = pa.concat_tables(tables)
    whole = {
        name: tuple(np.concatenate([part[name][index] for part in scored]) for index in (0, 1)) for name in scored[0]
    }
    return Result(table=table, read=read, rows=table.num_rows, scored=whole)  # type: ignore[arg-type]
