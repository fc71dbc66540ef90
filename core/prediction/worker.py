"""What a prediction process runs: ``python -m core.prediction.worker FD``, started by `core.prediction.processes`."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from core.errors import CoreError


def main(descriptor: int) -> None:
    connection = Connection(descriptor)
    received: SimpleQueue[Any] = SimpleQueue()
    # Always listening: were both sides to wait for the other to take what it sends, they would wait for ever.
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    work, parts = received.get()

    from core.prediction.work import network_of

    try:
        network = network_of(work.saved, work.device)
    except CoreError as error:
        connection.send((None, error))
        return
    for outcome in work.outcomes(network, iter(received.get, None), parts=parts):
        connection.send(outcome)


def _receive(connection: Connection, received: SimpleQueue[Any]) -> None:
    try:
        while True:
            received.put(connection.recv())
    except (EOFError, OSError):  # the coordinator has what it wanted, or is gone
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
