"""Reading, encoding and predicting side by side: what comes next is begun before what came before is done."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from core.backends.placement import Device

T = TypeVar("T")
S = TypeVar("S")

AHEAD = 2
"""Things that are made, and begun, before they are needed."""
MOST_LANES = 8
"""Batches at once on a CPU, whose activations all take memory."""

Run = Callable[[Callable[[int], Any], Iterable[int]], Iterator[Any]]
"""``map``, or what does the same on several threads."""


@contextlib.contextmanager
def lanes(device: Device) -> Iterator[Run]:
    """What runs batches: on a CPU several at once, each on a thread of its own.

    That takes less time than all threads on one batch after the other, which wait for each other in every layer. And
    what comes out does not depend on how many there are.
    """
    import torch

    threads = torch.get_num_threads()
    count = min(threads, MOST_LANES)
    if device != "cpu" or count == 1:
        yield map
        return
    begun = threading.Barrier(count)
    with ThreadPoolExecutor(count, "core-predict", torch.set_num_threads, (threads // count,)) as executor:
        list(executor.map(lambda _: begun.wait(), range(count)))
        torch.set_num_threads(threads)  # the lanes have theirs; this is for threads that others start
        yield executor.map


def overlapped(things: Iterator[T], begin: Callable[[T], S]) -> Iterator[S]:
    """``map(begin, things)``: a thread makes the things, and those that are ready have begun before they are taken."""
    done: Any = object()
    with ThreadPoolExecutor(1, thread_name_prefix="core-read-ahead") as executor:
        coming = deque(executor.submit(next, things, done) for _ in range(AHEAD))
        begun: deque[S] = deque()
        while coming or begun:
            if begun and (len(begun) > AHEAD or not coming or not coming[0].done()):
                yield begun.popleft()
            elif (thing := coming.popleft().result()) is done:
                coming.clear()
            else:
                coming.append(executor.submit(next, things, done))
                begun.append(begin(thing))
