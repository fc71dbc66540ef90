"""Where the time of a worker's training goes, all of it, in a few parts."""

from __future__ import annotations

import time

PARTS = {
    "start": "reading data into memory, making the model, loading a checkpoint",
    "data": "waiting for batches",
    "forward": "the model and its loss",
    "backward": "gradients, and what of their exchange goes on meanwhile",
    "exchange": "waiting for the other workers, and for a GPU",
    "update": "the optimiser",
    "evaluation": "measuring validation, test and training rows",
    "saving": "checkpoints and the best weights",
    "other": "callbacks and bookkeeping",
}
"""Each part, and what it is."""


class Profile:
    """A stopwatch of laps: time belongs to the part that is named when it has passed.

    It is the time of the loop on the CPU. Work on a GPU goes on beside it and counts where the loop waits for it.

    Attributes:
        seconds: by part, in the order of `PARTS`.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """The time since the last call was spent on `part`."""
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now
