"""Batch prediction and evaluation with a saved model."""

from __future__ import annotations

from core.prediction.output import collect, predictions_path, write_predictions
from core.prediction.predict import ROW, Evaluation, evaluate, predict

__all__ = [
    "ROW",
    "Evaluation",
    "collect",
    "evaluate",
    "predict",
    "predictions_path",
    "write_predictions",
]
