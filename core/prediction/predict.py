"""A saved model over a dataset: cut it into blocks, have them done, and hand on what comes out, in row order."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from core.backends.interrupts import on_interrupt
from core.backends.placement import place_prediction
from core.callbacks import Reporter
from core.config.sections import Backend
from core.errors import CoreError, DataError, Interrupted
from core.prediction.engines import outcomes
from core.prediction.output import Target
from core.prediction.work import DEFAULT_BATCH_SIZE, ROW, Outcome, Result, Scored, Work
from core.run import SavedModel

if TYPE_CHECKING:
    import pyarrow as pa

    from core.data.encode import InputBlock, Inputs
    from core.prediction.job import Job
    from core.prediction.parts import Parts

log = logging.getLogger("core")


@attrs.frozen(kw_only=True)
class Evaluation:
    """What evaluating gave.

    Attributes:
        metrics: ``{feature or "combined": {metric: value}}``.
        rows: rows the metrics are of; rows without a target are not among them.
        predictions: one row for each row of the dataset, or of the split; None where they were written,
            or not wanted.
    """

    metrics: dict[str, dict[str, float]]
    rows: int
    predictions: pa.Table | None


@attrs.frozen(kw_only=True)
class Request:
    """What is asked for.

    Attributes:
        dataset: as `open_source` takes it.
        split: ``full``, or the rows that training put into that split.
        index_column: a column of the dataset to carry over.
        numbered: add the column `ROW`, the rows' numbers in the dataset.
    """

    saved: SavedModel
    dataset: Any
    backend: Backend
    split: str = "full"
    batch_size: int | None = None
    index_column: str | None = None
    numbered: bool = False


def predict(request: Request, reporter: Reporter) -> pa.Table:
    """Predictions, one row for each row of the dataset, in its order; null where an input says `drop_row`.

    Raises:
        DataError: there are no rows, or they cannot be read.
        ConfigError: the backend asks for what there is not.
        WorkerFailed: workers died, again and again.
    """
    import pyarrow as pa

    with _job(request, reporter, None, scoring=False) as results:
        return pa.concat_tables([result.table for result in results if result.table is not None])


def predict_to(request: Request, target: Target, reporter: Reporter) -> int:
    """`predict`, written part by part; returns the number of rows.

    A job that was stopped goes on from the parts that it finished, when it is asked for again.

    Raises:
        UserError: another process writes there, or the folder holds something else.
        StorageError: it cannot be written.
        Interrupted: by Ctrl-C; finished parts are kept.
    """
    with _job(request, reporter, target, scoring=False) as results:
        return sum(result.rows for result in results)


def evaluate(request: Request, reporter: Reporter, target: Target | None = None, *, collect: bool = True) -> Evaluation:
    """Metrics over all rows that have every target, and the predictions of all rows, as `predict` gives them.

    The predictions go to `target`, where there is one, as they come. Metrics are exact, as if one process had seen
    all rows: raw outputs and targets of all of them are brought here, which takes 4 bytes for each output and each
    target of a row (for a category, an output is as wide as it has classes), twice while they are put together.

    Args:
        collect: without a target, hand the predictions back.

    Raises:
        DataError: no row has its targets.
    """
    import pyarrow as pa

    from core.training.evaluation import score

    wanted = collect and target is None
    tables: list[pa.Table] = []
    scored: list[Scored] = []
    features = request.saved.config.output_features
    with _job(request, reporter, target, scoring=True) as results:
        for result in results:
            scored += [result.scored] if result.scored else []
            tables += [result.table] if result.table is not None and wanted else []
        rows = sum(len(of[features[0].name][1]) for of in scored)
        if not rows:
            raise DataError(
                "no row has a value for every output feature, so there is nothing to measure",
                path="--dataset",
                expected=f"columns {', '.join(feature.source for feature in features)}",
                hint="Use `core predict` for data without targets.",
            )
        whole = {feature.name: _gathered([of[feature.name] for of in scored]) for feature in features}
        metrics = score(whole, features, request.saved.metadata)
    return Evaluation(metrics=metrics, rows=rows, predictions=pa.concat_tables(tables) if wanted else None)


def _gathered(parts: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    import torch

    return tuple(torch.from_numpy(np.concatenate([part[index] for part in parts])) for index in (0, 1))


@contextlib.contextmanager
def _job(request: Request, reporter: Reporter, target: Target | None, *, scoring: bool) -> Iterator[Iterator[Result]]:
    """The results of all blocks, in row order; with a target they are written, which is finished as the block ends."""
    from core.data import open_inputs

    saved = request.saved
    placement = place_prediction(request.backend)
    inputs = open_inputs(
        saved.config,
        saved.metadata,
        request.dataset,
        outputs=scoring,
        split=None if request.split == "full" else request.split,
        seed=saved.seed,
        carried=[("--index-column", request.index_column)] if request.index_column is not None else [],
    )
    if not inputs.blocks:
        raise DataError(
            f"no row of the dataset is in the {request.split} split",
            path="--split",
            found=request.split,
            hint="The model's config, preprocessing.split, says how rows are divided.",
        )
    work = Work(
        saved=saved,
        encoding=inputs.encoding,
        device=placement.device,
        batch_size=request.batch_size or DEFAULT_BATCH_SIZE,
        index_column=request.index_column,
        numbered=request.numbered,
        scoring=scoring,
    )

    def run(todo: list[tuple[int, InputBlock]], parts: Parts | None) -> Generator[Outcome]:
        return outcomes(
            placement, work, todo, parts=parts, advance=lambda rows: reporter("prediction_progress", rows=rows)
        )

    if target is None:
        with contextlib.closing(run(list(enumerate(inputs.blocks)), None)) as coming:
            yield _in_order(work, inputs, coming)
        return
    with _written(request, work, inputs, target, placement.workers > 1, run) as results:
        yield results


@contextlib.contextmanager
def _written(
    request: Request,
    work: Work,
    inputs: Inputs,
    target: Target,
    several: bool,
    run: Callable[[list[tuple[int, InputBlock]], Parts | None], Generator[Outcome]],
) -> Iterator[Iterator[Result]]:
    """The results of all blocks, those that were done before among them, written behind by a thread."""
    from core.prediction.job import behind, finished_rows, opened
    from core.prediction.parts import job_digest

    digest = job_digest(work, inputs, request.split)
    if not work.scoring and (rows := finished_rows(target, digest)) is not None:
        log.info("%s is complete already", target)
        yield iter([Result(table=None, read=rows, rows=rows)])
        return
    about = {"model": str(work.saved.path), "dataset": inputs.source.name, "split": request.split}
    with opened(target, digest, len(inputs.blocks), about) as job:
        # Parts of a folder that is elsewhere are written by whoever makes them: all need not pass through here.
        theirs = several and not target.suffix and target.place.local_path is None
        todo = [(number, block) for number, block in enumerate(inputs.blocks) if number not in job.done]
        with (
            _interruptible(job.parts),
            behind(job) as take,
            contextlib.closing(run(todo, job.parts if theirs else None)) as coming,
        ):
            yield _in_order(
                work, inputs, coming, job, lambda number, result, before: take(number, result, kept=before or theirs)
            )


def _in_order(
    work: Work,
    inputs: Inputs,
    coming: Iterator[Outcome],
    job: Job | None = None,
    take: Callable[[int, Result, bool], None] = lambda number, result, before: None,
) -> Iterator[Result]:
    from core.data.encode import no_rows

    next_row = 0
    for number, block in enumerate(inputs.blocks):
        first_row = next_row if block.first_row is None else block.first_row
        before = job is not None and number in job.done
        if job is not None and before:
            result = job.found(number)
        else:
            _, outcome = next(coming)
            if isinstance(outcome, CoreError):
                raise _with_its_row(work, block, outcome, first_row)
            result = outcome
        next_row = first_row + result.read
        take(number, result, before)
        yield _numbered(result, first_row) if work.numbered else result
    if not next_row:
        raise no_rows(inputs.source)


def _with_its_row(work: Work, block: InputBlock, error: CoreError, first_row: int) -> CoreError:
    """The error of a block, which names its row in the dataset even where the block's worker could not know it."""
    if isinstance(error, DataError) and block.first_row is None and first_row:
        try:
            for _ in work.encode(block, first_row):
                pass
        except CoreError as exact:
            return exact
    return error


def _numbered(result: Result, first_row: int) -> Result:
    """With `ROW` counted from the dataset's first row."""
    import pyarrow.compute as pc

    if result.table is None or not first_row:
        return result
    column = result.table.column_names.index(ROW)
    return attrs.evolve(result, table=result.table.set_column(column, ROW, pc.add(result.table.column(ROW), first_row)))


@contextlib.contextmanager
def _interruptible(parts: Parts) -> Iterator[None]:
    """Ctrl-C and a request to end, told as what they come to: the parts that are done stay."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with on_interrupt(interrupt):
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped after {len(parts.done())} of {parts.count} parts", hint="The same command continues."
            ) from None
