"""A line between the workers of a cluster and the process that asked for the job, wherever each of them is.

The driver may be no node of the cluster, so it can call and cannot be called: both sides call an actor that holds their
messages. Contents pass it as bytes: were it to open them, it would import torch for that.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple


class Message(NamedTuple):
    """What a worker said; `number` is set where it waits for an answer."""

    rank: int
    kind: str
    content: bytes
    number: int | None


class Line:
    """The actor. Its methods run side by side in one event loop."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count()
        self._order = ""
        self._given = asyncio.Event()

    # The workers' side.

    async def tell(self, rank: int, messages: Sequence[tuple[str, bytes]]) -> None:
        """Leave messages, each a kind and a content. Calls that a worker makes at once may come in any order."""
        for kind, content in messages:
            self._messages.put_nowait(Message(rank, kind, content, None))

    async def ask(self, rank: int, kind: str, content: bytes) -> bytes:
        """Leave a message and wait for its answer."""
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._messages.put_nowait(Message(rank, kind, content, number))
        return await answer

    async def order(self, after: str) -> str:
        """What the driver wants next, once it is another than `after`: `stop` after this step, or `die` at once."""
        while self._order == after:
            self._given.clear()
            await self._given.wait()
        return self._order

    # The driver's side.

    async def take(self, seconds: float) -> list[Message]:
        """The messages there are, waiting up to `seconds` for the first."""
        messages = []
        if self._messages.empty():
            try:
                messages.append(await asyncio.wait_for(self._messages.get(), seconds))
            except TimeoutError:
                return []
        while not self._messages.empty():
            messages.append(self._messages.get_nowait())
        return messages

    async def answer(self, number: int, value: bytes) -> None:
        """Answer the question of that number."""
        self._waiting.pop(number).set_result(value)

    async def give(self, order: str) -> None:
        """Give an order to all workers."""
        self._order = order
        self._given.set()
