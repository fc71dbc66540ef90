"""The learning rate of every step, as a factor of the base rate: a function of the step, plus cuts on a plateau."""

from __future__ import annotations

import math

import attrs

from core.config.sections import LearningRateScheduler


def factor(schedule: LearningRateScheduler, step: int, *, total_steps: int, steps_per_round: int) -> float:
    """Warm-up, then decay.

    Args:
        step: optimiser steps done so far.
        total_steps: steps of the whole run.
        steps_per_round: steps between two evaluations.
    """
    warmup = round(schedule.warmup_fraction * total_steps) or round(schedule.warmup_evaluations * steps_per_round)
    if step < warmup:
        return (step + 1) / warmup
    since = step - warmup
    match schedule.decay:
        case "linear":
            return max(0.0, 1 - since / max(1, total_steps - warmup))
        case "exponential":
            periods = since / schedule.decay_steps
            return schedule.decay_rate ** (math.floor(periods) if schedule.staircase else periods)
        case "cosine":
            period = schedule.t_0 or max(1, total_steps - warmup)
            while since >= period and schedule.t_0 is not None:
                since, period = since - period, period * schedule.t_mult
            part = min(1.0, since / period)
            return schedule.eta_min + (1 - schedule.eta_min) * (1 + math.cos(math.pi * part)) / 2
    return 1.0


@attrs.frozen(kw_only=True)
class Plateau:
    """How often the rate was cut because a metric stopped improving."""

    cuts: int = 0
    best: float | None = None
    rounds: int = 0

    def after(self, schedule: LearningRateScheduler, value: float, *, maximize: bool) -> Plateau:
        """The state after one more evaluation gave `value`."""
        if self.cuts >= schedule.reduce_on_plateau:
            return self
        if self.best is None or (value > self.best if maximize else value < self.best):
            return attrs.evolve(self, best=value, rounds=0)
        if self.rounds + 1 < schedule.reduce_on_plateau_patience:
            return attrs.evolve(self, rounds=self.rounds + 1)
        return attrs.evolve(self, cuts=self.cuts + 1, rounds=0)

    def factor(self, schedule: LearningRateScheduler) -> float:
        return schedule.reduce_on_plateau_rate**self.cuts
