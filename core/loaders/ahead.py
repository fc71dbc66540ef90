"""Items made by a thread before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T], depth: int = 1) -> Generator[T, None, None]:
    """The items in their order, up to `depth` of them made ahead by one thread, which an exception ends and passes.

    Whoever stops before the end closes it, as every `for` loop does with a generator that nobody else holds: the item
    that is being made is waited for, and the thread is gone.
    """
    end = object()
    executor = ThreadPoolExecutor(1, thread_name_prefix="core-read-ahead")
    coming: deque[Future[T | object]] = deque()
    try:
        while True:
            while len(coming) < depth:
                coming.append(executor.submit(next, items, end))
            item = coming.popleft().result()
            if item is end:
                return
            coming.append(executor.submit(next, items, end))
            yield item  # type: ignore[misc]  # not the end
    finally:
        executor.shutdown(cancel_futures=True)
