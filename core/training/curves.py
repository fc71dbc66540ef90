"""Learning curves as a picture: one plot a metric, one line a split."""

from __future__ import annotations

import warnings

from core.storage import Location

COLOURS = {"training": "tab:blue", "validation": "tab:orange", "test": "tab:green"}


def draw_learning_curves(statistics: dict[str, dict[str, dict[str, list[float]]]], path: Location) -> None:
    """Write a PNG of every metric of every output feature over evaluations.

    Args:
        statistics: as in ``training_statistics.json``.
    """
    # Not pyplot: it keeps global state and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names = {name for features in statistics.values() for name in features}
    plots = sorted(
        {
            (feature, metric)
            for features in statistics.values()
            for feature, metrics in features.items()
            for metric in metrics
            if feature != "combined" or len(names) > 2  # with one output it repeats that output's loss
        },
        key=lambda plot: (plot[0] != "combined", plot[0], plot[1] != "loss", plot[1]),
    )
    across = min(3, len(plots))
    down = -(-len(plots) // across)
    width, height = 4.5 * across, 3.2 * down
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    # In inches, for titles and labels of one line; a layout engine would draw everything three times to find out.
    figure.subplots_adjust(
        left=0.6 / width,
        right=1 - 0.2 / width,
        bottom=0.5 / height,
        top=1 - 0.4 / height,
        wspace=0.25,
        hspace=0.45,
    )
    for number, (feature, metric) in enumerate(plots, 1):
        axes = figure.add_subplot(down, across, number)
        for split, features in statistics.items():
            values = features.get(feature, {}).get(metric)
            if values:
                marker = "o" if len(values) == 1 else None
                axes.plot(range(1, len(values) + 1), values, label=split, marker=marker, color=COLOURS[split])
        axes.set_title(f"{feature}: {metric}", fontsize=10, parse_math=False)
        axes.set_xlabel("evaluation")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    with path.writing() as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks
        figure.savefig(file, format="png", dpi=100)
