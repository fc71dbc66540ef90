"""Batch prediction and evaluation with a saved model."""

from __future__ import annotations

from core.prediction.output import Target, target_of
from core.prediction.predict import Evaluation, Request, evaluate, predict, predict_to
from core.prediction.work import ROW

__all__ = ["ROW", "Evaluation", "Request", "Target", "evaluate", "predict", "predict_to", "target_of"]
