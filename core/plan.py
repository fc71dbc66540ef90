"""What a run would do: everything up to, and not including, the work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from core.backends.placement import Placement
from core.config.sections import Config
from core.errors import CoreError, Problem

if TYPE_CHECKING:
    from core.data import Datasets
    from core.data.preview import Preview

FORMAT = 1
"""Version of the mapping: raised when a key changes its meaning or goes, not when one is added."""

FLOAT_BYTES = 4


@attrs.define(kw_only=True)
class Plan:
    """What was found out, and what stands in the way.

    Attributes:
        sections: plain values by section: `backend`, `processor`, `strategy`, `workers`, `batch`, `loader`, `data`,
            `cache`, `model`. What could not be found out is None, or its section is absent because of a problem.
        notes: one line for each key that is set and does not apply.
        problems: all that would stop the run.
    """

    sections: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    notes: list[str] = attrs.field(factory=list)
    problems: list[Problem] = attrs.field(factory=list)

    def to_json(self) -> dict[str, Any]:
        """A mapping of plain values."""
        problems = [
            {"path": problem.path, "message": str(problem), "hint": problem.hint or None} for problem in self.problems
        ]
        return {"format": FORMAT, **self.sections, "notes": self.notes, "problems": problems}


def plan(config: Config, datasets: Datasets, *, seed: int) -> Plan:
    """Look at the config, the machine or cluster, and the schema and size of the data.

    No cluster is started, and no row is read; files are digested for the cache's key where they are small.
    """
    from core.jobs import placed
    from core.training.batching import not_applicable

    found = Plan()
    placement: Placement | None = None
    with _problems_of(found):
        placement = placed(config, start=False)
    preview: Preview | None = None
    with _problems_of(found):
        from core.data.preview import preview as preview_of

        preview = preview_of(config, datasets, seed=seed)
        found.sections["data"] = preview.data()
        found.sections["cache"] = preview.cache()
    if placement is not None:
        found.notes += [*placement.notes, *not_applicable(config.trainer)]
        found.sections |= _of_placement(placement, preview)
        found.sections["batch"] = _batch(config, placement, preview)
        found.sections["loader"] = _loader(placement, preview)
    with _problems_of(found):
        found.sections["model"] = _model(config, preview)
    return found


@contextlib.contextmanager
def _problems_of(found: Plan) -> Iterator[None]:
    try:
        yield
    except CoreError as error:
        found.problems += error.problems


def _of_placement(placement: Placement, preview: Preview | None) -> dict[str, dict[str, Any]]:
    cluster = placement.cluster
    partitions = placement.processor.options.parallelism
    if partitions is None and preview is not None:
        partitions = preview.blocks()
    return {
        "backend": {
            "type": placement.launcher or placement.kind,
            "why": placement.why,
            "cluster": None if cluster is None else str(cluster),
            "starts": cluster is not None and not cluster.running,
        },
        "processor": {"type": placement.processor.type, "partitions": partitions},
        "strategy": {"type": placement.strategy.type, "options": _changed(placement.strategy.options)},
        "workers": {
            "number": placement.workers,
            "device": placement.device,
            "resources": dict(placement.resources),
            "room": None if cluster is None else cluster.room(placement.resources),
            "retries": placement.retries,
            "in_this_process": placement.in_process,
        },
    }


def _changed(options: Any) -> dict[str, Any]:
    """The options that are not at their defaults."""
    return attrs.asdict(options, filter=lambda field, value: value != getattr(type(options)(), field.name))


def _batch(config: Config, placement: Placement, preview: Preview | None) -> dict[str, Any]:
    from core.training.batching import batching

    cut = batching(config.trainer, placement.workers)
    rows = preview.training_rows() if preview is not None else None
    parts = cut.parts(cut.rows, placement.workers)
    share = [cut.rows // placement.workers, -(-cut.rows // placement.workers)]
    steps = None if rows is None else -(-rows // cut.rows)
    return {
        "rows": cut.rows,
        "rows_per_worker": share,
        "micro_batches": parts,
        "rows_per_micro_batch": -(-share[1] // parts),
        "steps_per_epoch": steps,
        "steps": config.trainer.train_steps or (None if steps is None else steps * config.trainer.epochs),
    }


def _loader(placement: Placement, preview: Preview | None) -> dict[str, Any]:
    from core.data.memory import room

    options = placement.loader.options
    left = room()
    return {
        "type": placement.loader.type,
        "fully_executed": options.fully_executed,
        "window_bytes": options.window_size_bytes,
        "bytes": None if preview is None else preview.encoded_bytes(),
        "free_memory": None if left is None else left.bytes,
    }


def _model(config: Config, preview: Preview | None) -> dict[str, Any]:
    """Sizes of the model: of its layers they depend on vocabularies, which preprocessing finds."""
    metadata = None if preview is None else preview.metadata()
    if metadata is None:
        return {"parameters": None, "bytes": None}
    import torch

    from core.model import build

    with torch.device("meta"):
        model = build(config, dict(metadata))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    state = _state_per_parameter(config)
    return {
        "parameters": parameters,
        # Weights, gradients, and what the optimiser remembers of each.
        "bytes": parameters * FLOAT_BYTES * (2 + state),
    }


def _state_per_parameter(config: Config) -> int:
    """Numbers that the optimiser keeps for each weight, found by letting it make a step."""
    import torch

    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.zeros(2)
    optimizer = config.trainer.optimizer.build([weight], config.trainer.learning_rate)
    optimizer.step()
    kept = (value for value in optimizer.state[weight].values() if isinstance(value, torch.Tensor))
    return sum(value.numel() == weight.numel() for value in kept)
