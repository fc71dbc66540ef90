"""A saved model over a dataset: encode a block, run the network over it, hand on what comes out, in row order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import attrs

from core.backends.placement import Device, prediction_device
from core.callbacks import Reporter
from core.config.sections import Backend
from core.errors import DataError, ModelError
from core.features.base import OutputFeature
from core.prediction.output import Write, collect
from core.run import WEIGHTS, SavedModel

if TYPE_CHECKING:
    import pyarrow as pa
    import torch
    from torch import Tensor

    from core.data import EncodedBlock

DEFAULT_BATCH_SIZE = 8192
ROW = "__row__"


@attrs.frozen(kw_only=True)
class Evaluation:
    """What evaluating gave.

    Attributes:
        metrics: ``{feature or "combined": {metric: value}}``.
        rows: rows the metrics are of; rows without a target are not among them.
        predictions: one row for each row of the dataset, or of the split.
    """

    metrics: dict[str, dict[str, float]]
    rows: int
    predictions: pa.Table


def predict(
    saved: SavedModel,
    dataset: Any,
    *,
    backend: Backend,
    reporter: Reporter,
    split: str = "full",
    batch_size: int | None = None,
    index_column: str | None = None,
    numbered: bool = False,
    write: Write | None = None,
) -> Any:
    """Predictions, one row for each row of the dataset, in its order; null where an input says `drop_row`.

    Args:
        numbered: add the column `ROW`, the rows' numbers in the dataset.

    Returns:
        The table; with `write`, which gets it part by part, the number of rows instead.
    """
    device = prediction_device(backend)
    network = _network(saved, device)
    tables: list[pa.Table] = []
    append = write or collect(tables)
    index = _index(dataset, index_column)
    rows = 0
    for block in _blocks(saved, dataset, split=split, outputs=False):
        outputs = _forward(network, block.table, saved, device, batch_size, reporter)
        append(_table(saved, outputs, block, index, numbered=numbered))
        rows += len(block.rows)
    if write is not None:
        return rows
    import pyarrow as pa

    return pa.concat_tables(tables)


def evaluate(
    saved: SavedModel,
    dataset: Any,
    *,
    backend: Backend,
    reporter: Reporter,
    split: str = "full",
    batch_size: int | None = None,
    index_column: str | None = None,
    numbered: bool = False,
) -> Evaluation:
    """Metrics over all rows that have every target, and the predictions of all rows, as `predict` gives them.

    Raises:
        DataError: no row has its targets.
    """
    import pyarrow as pa
    import torch

    from core.training.evaluation import score

    device = prediction_device(backend)
    network = _network(saved, device)
    features = saved.config.output_features
    tables: list[pa.Table] = []
    gathered: dict[str, list[tuple[Tensor, Tensor]]] = {feature.name: [] for feature in features}
    index = _index(dataset, index_column)
    for block in _blocks(saved, dataset, split=split, outputs=True):
        outputs = _forward(network, block.table, saved, device, batch_size, reporter)
        tables.append(_table(saved, outputs, block, index, numbered=numbered))
        scored = torch.from_numpy(block.valid & block.labelled)
        for feature in features:
            targets = _targets(feature, block.table)
            gathered[feature.name].append((outputs[feature.name][scored], targets[scored]))
    whole = {
        name: (torch.cat([o for o, _ in parts]), torch.cat([t for _, t in parts])) for name, parts in gathered.items()
    }
    rows = len(next(iter(whole.values()))[0])
    if not rows:
        raise DataError(
            "no row has a value for every output feature, so there is nothing to measure",
            path="--dataset",
            expected=f"columns {', '.join(feature.source for feature in features)}",
            hint="Use `core predict` for data without targets.",
        )
    return Evaluation(metrics=score(whole, features, saved.metadata), rows=rows, predictions=pa.concat_tables(tables))


def _network(saved: SavedModel, device: Device) -> torch.nn.Module:
    from core.model import build

    network = build(saved.config, saved.metadata)
    try:
        network.load_state_dict(saved.weights())
    except RuntimeError as error:
        raise ModelError(
            f"its weights do not fit its config: {error}",
            path=str(saved.path / WEIGHTS),
            hint="Copy the model folder again, or train it again.",
        ) from error
    return network.to(device).eval()


def _blocks(saved: SavedModel, dataset: Any, *, split: str, outputs: bool) -> Iterator[EncodedBlock]:
    """Every block of the rows that are asked for, at least one.

    Raises:
        DataError: no row of the dataset is in the split.
    """
    from core.data import encode_inputs

    blocks = encode_inputs(
        saved.config,
        saved.metadata,
        dataset,
        outputs=outputs,
        split=None if split == "full" else split,
        seed=saved.seed,
    )
    first = next(blocks, None)
    if first is None:
        raise DataError(
            f"no row of the dataset is in the {split} split",
            path="--split",
            found=split,
            hint="The model's config, preprocessing.split, says how rows are divided.",
        )
    return _read_ahead(itertools.chain([first], blocks))


def _read_ahead(blocks: Iterator[EncodedBlock]) -> Iterator[EncodedBlock]:
    """The blocks, each read and encoded by a thread while the one before it is worked on."""
    with ThreadPoolExecutor(1, thread_name_prefix="core-read-ahead") as executor:
        coming = executor.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = executor.submit(next, blocks, None)
            yield block


def _index(dataset: Any, column: str | None) -> pa.Table | None:
    """The column to carry over, as a table of one column."""
    if column is None:
        return None
    import pyarrow as pa

    from core.data import open_source
    from core.data.sources import missing_columns

    source = open_source(dataset)
    if problems := missing_columns(source, [("--index-column", column)]):
        raise DataError(problems)
    return pa.concat_tables([read() for read in source.select([column]).blocks(None)])


def _forward(
    network: torch.nn.Module,
    table: pa.Table,
    saved: SavedModel,
    device: str,
    batch_size: int | None,
    reporter: Reporter,
) -> dict[str, Tensor]:
    """Raw outputs of a block, on CPU."""
    import torch

    from core.loaders.rows import Rows

    inputs = [feature.name for feature in saved.config.input_features]
    rows = Rows.from_arrow(table.select(inputs))
    size = batch_size or DEFAULT_BATCH_SIZE
    parts: list[dict[str, Tensor]] = []
    with torch.inference_mode():
        for start in range(0, max(len(rows), 1), size):
            batch = rows[start : start + size]
            parts.append({name: output.float().cpu() for name, output in network(batch.columns(device)).items()})
            reporter("prediction_progress", rows=len(batch))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _targets(feature: OutputFeature, table: pa.Table) -> Tensor:
    from core.loaders.rows import Rows

    return Rows.from_arrow(table.select([feature.name])).columns()[feature.name]


def _table(
    saved: SavedModel, outputs: dict[str, Tensor], block: EncodedBlock, index: pa.Table | None, *, numbered: bool
) -> pa.Table:
    """``<feature>_predictions`` and its companions; null where the row is not valid."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = (
        {} if index is None else dict(zip(index.column_names, index.take(block.rows).columns, strict=True))
    )
    valid = None if block.valid.all() else pa.array(block.valid)
    for feature in saved.config.output_features:
        for suffix, values in feature.predictions(outputs[feature.name], saved.metadata[feature.name]).items():
            name = f"{feature.name}_{suffix}"
            if name in columns:
                raise DataError(
                    f"two columns of the predictions would be named {name!r}",
                    path="--index-column" if index is not None and name in index.column_names else "output_features",
                    hint="Rename the column, or the output feature.",
                )
            columns[name] = values if valid is None else pc.if_else(valid, values, None)
    if numbered:
        columns[ROW] = pa.array(block.rows)
    return pa.table(columns)
