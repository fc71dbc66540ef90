"""Asking again, for a while, what a server or the network before it failed to answer."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
"""How long to go on asking. Clients of object stores ask again by themselves; this comes on top."""

FIRST_DELAY_SECONDS = 0.5

_TRANSIENT_ERRNOS = frozenset(
    {
        errno.EBUSY,
        errno.EAGAIN,
        errno.EPIPE,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        getattr(errno, "EREMOTEIO", errno.EIO),
    }
)
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
# Of libraries that may not be installed: botocore, aiohttp, requests, urllib3.
_TRANSIENT_NAMES = frozenset(
    {
        "ConnectionError",
        "HTTPClientError",
        "ClientConnectionError",
        "ClientPayloadError",
        "IncompleteReadError",
        "ProtocolError",
    }
)


def patiently(request: Callable[[], T], say: Callable[[Exception], None]) -> T:
    """The answer to a request that may be made twice; `say` hears of each error that it is made again for.

    The pauses double, and each is shortened at random, so that many workers do not come back at once.
    """
    delay, end = FIRST_DELAY_SECONDS, time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return request()
        except Exception as error:
            if not is_transient(error) or time.monotonic() + delay > end:
                raise
            say(error)
        time.sleep(delay * random.uniform(0.5, 1.0))
        delay *= 2


def is_transient(error: BaseException) -> bool:
    """Whether the same request may well succeed later."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    if getattr(error, "status", None) in _TRANSIENT_STATUSES:  # aiohttp
        return True
    return not _TRANSIENT_NAMES.isdisjoint(kind.__name__ for kind in type(error).__mro__)
