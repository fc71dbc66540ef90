"""Learning curves as a picture: one plot a metric, one line a split."""

from __future__ import annotations

from pathlib import Path

from core.run import storage_errors


def draw_learning_curves(statistics: dict[str, dict[str, dict[str, list[float]]]], path: Path) -> None:
    """Write a PNG of every metric of every output feature over evaluations.

    Args:
        statistics: as in ``training_statistics.json``.
    """
    # Not pyplot: it keeps global state and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plots = sorted(
        {
            (feature, metric)
            for features in statistics.values()
            for feature, metrics in features.items()
            for metric in metrics
        },
        key=lambda plot: (plot[0] != "combined", plot[0], plot[1] != "loss", plot[1]),
    )
    across = min(3, len(plots))
    down = -(-len(plots) // across)
    figure = Figure(figsize=(4.5 * across, 3.2 * down), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (feature, metric) in zip(figure.subplots(down, across, squeeze=False).flat, plots, strict=False):
        for split, features in statistics.items():
            values = features.get(feature, {}).get(metric)
            if values:
                marker = "o" if len(values) == 1 else None
                axes.plot(range(1, len(values) + 1), values, label=split, marker=marker)
        axes.set_title(f"{feature}: {metric}", fontsize=10)
        axes.set_xlabel("evaluation")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    for axes in list(figure.axes)[len(plots) :]:
        axes.set_visible(False)
    with storage_errors("write", path):
        figure.savefig(path, dpi=100)
