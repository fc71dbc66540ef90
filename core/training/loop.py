"""The training loop. It reads top to bottom and never asks which strategy it has."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor

from core.config.sections import Config, Trainer
from core.errors import Interrupted, NonFiniteLoss
from core.loader import BatchPlan, Loader
from core.storage import Location
from core.strategy import Strategy
from core.training import checkpoint
from core.training.batching import learning_rate
from core.training.checkpoint import Progress
from core.training.evaluation import COMBINED, forward_split, loss_weight, score
from core.training.exact import ExactSteps, exact_arithmetic
from core.training.profile import Profile
from core.training.schedule import Plateau, factor
from core.training.step import Steps

TRAINING, VALIDATION, TEST = "training", "validation", "test"


class Report(Protocol):
    """How the loop tells the coordinator what happens. Only rank 0's is heard."""

    def __call__(self, event: str, /, **details: Any) -> None: ...

    def should_stop(self) -> bool:
        """Whether a callback wants training to end after this evaluation. Asked on rank 0 only."""


@attrs.frozen(kw_only=True)
class Run:
    """Everything the loop needs.

    Attributes:
        loaders: split name to loader; `training` always, the others where they have rows.
        metadata: feature name to what preprocessing learnt of it.
        checkpoints: folder of the checkpoints, or None to write none.
        save_best: called on rank 0 with the weights that did best so far.
        interrupted: whether this worker was asked to stop; looked at after each step.
        profile: where time is noted.
    """

    config: Config
    seed: int
    strategy: Strategy
    loaders: Mapping[str, Loader]
    metadata: Mapping[str, dict[str, Any]]
    checkpoints: Location | None
    save_best: Callable[[dict[str, Tensor]], None]
    report: Report
    interrupted: Callable[[], bool]
    profile: Profile = attrs.field(factory=Profile)


def train(run: Run, progress: Progress) -> Progress:
    """Train from `progress` to the end.

    `run.strategy` is prepared and, when continuing, loaded.

    Raises:
        NonFiniteLoss: on every worker, in the same step.
        Interrupted: on every worker, after the same step, with a checkpoint written.
    """
    if run.config.trainer.exact:
        with exact_arithmetic(run.strategy.device):
            return _train(run, progress, ExactSteps(run))
    return _train(run, progress, Steps(run))


def _train(run: Run, progress: Progress, steps: Steps) -> Progress:
    trainer, strategy, profile = run.config.trainer, run.strategy, run.profile
    features = run.config.output_features
    plan = BatchPlan(
        batch_size=steps.cut.rows,
        rank=strategy.rank,
        world_size=strategy.world_size,
        seed=run.seed,
        shuffle=trainer.should_shuffle,
    )
    rows = run.loaders[TRAINING].split.rows
    epoch_steps = -(-rows // plan.batch_size)
    total_steps = trainer.train_steps or trainer.epochs * epoch_steps
    round_steps = _steps_per_round(trainer, epoch_steps)
    base_rate = learning_rate(trainer, strategy.world_size)
    progress.losses = progress.losses or [0.0] * len(features)
    run.report(
        "train_start",
        steps=total_steps,
        epochs=-(-total_steps // epoch_steps),
        done=progress.step,
        exchanged_bytes=steps.exchanged_bytes,
    )
    profile.lap("start")

    while progress.step < total_steps and not progress.stopped_early:
        run.report("epoch_start", epoch=progress.epoch)
        profile.lap("other")
        for batch in run.loaders[TRAINING].batches(plan, progress.epoch, start=progress.batch):
            profile.lap("data")
            schedule = trainer.learning_rate_scheduler
            rate = (
                base_rate
                * factor(schedule, progress.step, total_steps=total_steps, steps_per_round=round_steps)
                * Plateau(**progress.plateau).factor(schedule)
            )
            for group in strategy.optimizer.param_groups:
                group["lr"] = rate
            run.report("batch_start", step=progress.step)
            profile.lap("other")
            losses, stop = steps.train(batch, progress.step)
            progress.step += 1
            progress.batch += 1
            progress.rows += batch.global_rows
            progress.losses = [done + new for done, new in zip(progress.losses, losses, strict=True)]
            combined = _combined(features, [loss / batch.global_rows for loss in losses])
            if not math.isfinite(combined):
                raise _non_finite(run, combined, progress, rate)
            run.report("batch_end", step=progress.step, loss=combined, rows=batch.global_rows)
            last = progress.step == total_steps
            if progress.batch % round_steps == 0 or progress.batch == epoch_steps or last:
                profile.lap("other")
                _evaluate(run, progress, plan, steps)
                if progress.batch == epoch_steps:
                    progress.epoch, progress.batch = progress.epoch + 1, 0
                _save(run, progress)
                profile.lap("saving")
                if progress.stopped_early or last:
                    break
                if stop:
                    raise _interrupted(run, progress)
            elif stop:
                _save(run, progress)
                raise _interrupted(run, progress)
            profile.lap("other")
    profile.lap("other")
    run.report(
        "train_end", statistics=progress.statistics, best_round=progress.best_round, profile=dict(profile.seconds)
    )
    return progress


def _evaluate(run: Run, progress: Progress, plan: BatchPlan, steps: Steps) -> None:
    """Score every split, judge the result, and agree whether to go on."""
    trainer, features = run.config.trainer, run.config.output_features
    means = [loss / progress.rows for loss in progress.losses]
    scores: dict[str, dict[str, dict[str, float]]] = {
        TRAINING: {feature.name: {"loss": mean} for feature, mean in zip(features, means, strict=True)}
    }
    scores[TRAINING][COMBINED] = {"loss": _combined(features, means)}
    evaluation = attrs.evolve(plan, shuffle=False, batch_size=trainer.eval_batch_size or plan.batch_size)
    for name, loader in run.loaders.items():
        if name == TRAINING and not trainer.evaluate_training_set:
            continue
        run.report("evaluation_start", split=name, rows=loader.split.rows)
        gathered = forward_split(
            steps.outputs,
            loader,
            evaluation,
            features,
            run.strategy,
            rows=loader.split.rows,
            advance=lambda rows: run.report("evaluation_progress", rows=rows),
        )
        scores[name] = score(gathered, features, run.metadata)
        run.report("evaluation_end", split=name)
    for split, by_feature in scores.items():
        for name, metrics in by_feature.items():
            history = progress.statistics.setdefault(split, {}).setdefault(name, {})
            for metric, value in metrics.items():
                history.setdefault(metric, []).append(value)
    progress.losses, progress.rows = [0.0] * len(features), 0
    run.profile.lap("evaluation")
    exhausted = _judge(run, progress, scores)
    progress.round += 1
    run.profile.lap("saving")
    run.report("epoch_end", epoch=progress.epoch, round=progress.round, step=progress.step, scores=scores)
    # Rank 0 decides for all: callbacks live beside it, and one worker stopping alone would leave the others waiting.
    wish = torch.tensor(float(exhausted or (run.strategy.rank == 0 and run.report.should_stop())))
    progress.stopped_early = bool(run.strategy.broadcast(wish.to(run.strategy.device)).item())
    run.profile.lap("other")


def _judge(run: Run, progress: Progress, scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> bool:
    """Keep the weights if they are the best so far, and cut the rate on a plateau. True when patience is used up."""
    trainer = run.config.trainer
    watched = trainer.learning_rate_scheduler
    if watched.reduce_on_plateau and watched.reduce_eval_split in scores:
        field = trainer.validation_field or COMBINED
        name = watched.reduce_eval_metric
        value = scores[watched.reduce_eval_split][field][name]
        plateau = Plateau(**progress.plateau).after(watched, value, maximize=_maximize(run.config, field, name))
        progress.plateau = attrs.asdict(plateau)
    if VALIDATION not in scores:
        progress.best_round = progress.round
        _keep_best(run)
        return False
    field, metric = watched_metric(run.config)
    value, best = scores[VALIDATION][field][metric], progress.best_value
    better = operator.gt if _maximize(run.config, field, metric) else operator.lt
    if best is None or math.isnan(best) or better(value, best):
        progress.best_round, progress.best_value = progress.round, value
        _keep_best(run)
    assert progress.best_round is not None
    return trainer.early_stop >= 0 and progress.round - progress.best_round >= max(1, trainer.early_stop)


def watched_metric(config: Config) -> tuple[str, str]:
    """The output feature (or `combined`) and the metric that choose the best model."""
    field = config.trainer.validation_field
    if field is None:
        field = COMBINED if config.trainer.validation_metric in (None, "loss") else config.output_features[0].name
    return field, config.trainer.validation_metric or "loss"


def _maximize(config: Config, field: str, metric: str) -> bool:
    goals = {feature.name: feature.metric_goals for feature in config.output_features}
    return goals.get(field, {}).get(metric) == "maximize"


def _keep_best(run: Run) -> None:
    weights = run.strategy.state()["model"]
    if run.strategy.rank == 0:
        run.save_best(weights)


def _save(run: Run, progress: Progress) -> None:
    if run.checkpoints is None:
        return
    state = run.strategy.state()
    if run.strategy.rank == 0:
        folder = checkpoint.save(run.checkpoints, state, progress)
        run.report("checkpoint", path=str(folder), step=progress.step)


def _combined(features: Any, losses: list[float]) -> float:
    return sum(loss_weight(feature) * loss for feature, loss in zip(features, losses, strict=True))


def _steps_per_round(trainer: Trainer, epoch_steps: int) -> int:
    if trainer.steps_per_checkpoint:
        return trainer.steps_per_checkpoint
    if trainer.checkpoints_per_epoch:
        return max(1, epoch_steps // trainer.checkpoints_per_epoch)
    return epoch_steps


def _non_finite(run: Run, loss: float, progress: Progress, rate: float) -> NonFiniteLoss:
    return NonFiniteLoss(
        f"the loss became {loss} in step {progress.step} (epoch {progress.epoch + 1}), at learning rate {rate:g}",
        path="trainer.learning_rate",
        found=run.config.trainer.learning_rate,
        hint="Lower trainer.learning_rate, set trainer.gradient_clipping.clipglobalnorm, or look for extreme values in"
        " number features (normalization: zscore or iqr). The last checkpoint and the best model are kept.",
    )


def _interrupted(run: Run, progress: Progress) -> Interrupted:
    saved = "no checkpoint was asked for" if run.checkpoints is None else "a checkpoint was written"
    return Interrupted(f"stopped after step {progress.step} of epoch {progress.epoch + 1}; {saved}")
