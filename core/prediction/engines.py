"""Who does the blocks: this process, several of this machine, or the actors of a cluster. All hand back in order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from core.backends.placement import Prediction
from core.prediction.work import Advance, Outcome, Work, network_of

if TYPE_CHECKING:
    from core.data.encode import InputBlock
    from core.prediction.parts import Parts

Blocks = Sequence[tuple[int, "InputBlock"]]


def outcomes(
    placement: Prediction, work: Work, blocks: Blocks, *, parts: Parts | None, advance: Advance
) -> Generator[Outcome]:
    """The outcome of each block, in order, until one is an error. Close it to end what it started.

    Args:
        parts: of an output that is beyond this machine, which several workers then write themselves.
        advance: told of rows as they are predicted.

    Raises:
        WorkerFailed: workers died, again and again.
    """
    workers = min(placement.workers, len(blocks))
    if not workers:
        return
    if placement.cluster is not None:
        from core.backends.ray.predict import outcomes_on_cluster

        yield from outcomes_on_cluster(placement, work, blocks, parts, advance)
    elif workers > 1:
        from core.prediction.processes import outcomes_of_processes

        yield from outcomes_of_processes(workers, work, blocks, parts, advance)
    else:
        yield from work.outcomes(network_of(work.saved, work.device), blocks, parts=parts, advance=advance)
