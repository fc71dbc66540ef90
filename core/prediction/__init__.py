"""Batch prediction and evaluation with a saved model."""

from __future__ import annotations

from core.prediction.output import collect, predictions_path, write_predictions
from core.prediction.predict import Evaluation, evaluate, predict

__all__ = [
    "Evaluation",
    "collect",
    "evaluate",
    "predict",
    "predictions_path",
    "write_predictions",
]
