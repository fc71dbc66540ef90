"""What a worker process runs: ``python -m core.backends.worker``, started by `core.backends.workers`."""

from __future__ import annotations

import os
import sys
import threading

from core.backends.interrupts import on_interrupt
from core.backends.workers import ProcessChannel
from core.errors import CoreError


def main() -> int:
    rank = int(os.environ["RANK"])
    channel = ProcessChannel(rank)
    job = channel.receive()

    from core.training.job import make_strategy, run_job

    asked = threading.Event()
    strategy = make_strategy(job.strategy, job.device)
    try:
        with channel.failures_told(), on_interrupt(asked.set):
            strategy.start()
            channel.finish("result", run_job(job, strategy, channel, asked.is_set))
    except CoreError:
        pass  # the coordinator has it, and every worker comes here
    except BaseException:
        # Leaving the group in order may wait for a worker that is gone.
        os._exit(1)
    strategy.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
