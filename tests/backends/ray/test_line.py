"""What workers say reaches the driver as they said it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from core.backends.ray.line import Line
from core.backends.ray.worker import LineChannel

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

MESSAGES = 3000
LARGE = 200_000
"""Bytes that Ray does not send along with a call, but keeps for whoever needs them."""


@pytest.fixture
def line() -> Iterator[Any]:
    actor = ray.remote(num_cpus=0, max_concurrency=10_000)(Line).remote()
    yield actor
    ray.kill(actor)


def taken(line: Any) -> list[Any]:
    """Contents of all messages that have come."""
    return [pickle.loads(message.content) for message in ray.get(line.take.remote(0.0))]


def test_messages_keep_their_order_and_are_there_when_a_worker_has_finished(line):
    # given
    channel = LineChannel(0, line, every_batch=True)
    said = [(number, b" " * (LARGE if number % 100 == 0 else 1)) for number in range(MESSAGES)]
    # when
    for content in said:
        channel.send("log", content)
    channel.finish("result", "the end")
    # then
    assert taken(line) == [*said, "the end"]


def test_a_question_comes_after_what_was_said_before(line):
    # given
    channel = LineChannel(1, line, every_batch=True)
    for number in range(MESSAGES):
        channel.send("log", number)
    # when
    answers = []
    asking = threading.Thread(target=lambda: answers.append(channel.ask("should_stop", "may I?")))
    asking.start()
    found = []
    while not found or found[-1].number is None:
        found += ray.get(line.take.remote(5.0))
    line.answer.remote(found[-1].number, pickle.dumps((True, None)))
    asking.join(timeout=30)
    # then
    assert [pickle.loads(message.content) for message in found] == [*range(MESSAGES), "may I?"]
    assert answers == [True]
