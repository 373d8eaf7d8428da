"""Router and replica leave a record whose schema is not known yet where it is, and go on with the others."""

import threading
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from ranking.client.follower import Follower
from ranking.consumer.worker.route_consumer import RouteConsumer
from ranking.router.worker import RouterWorker
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import Decoder, use_registry
from schemas.kafka.held import HeldPartitions
from schemas.records import RankingAnswer

PENDING = b"\0\0\0\0\x07body"
KNOWN = b"\xc3\x01unreadable but of no registry"


class FakeRegistry:
    """Knows nothing of id 7 until it is told that it is nothing."""

    answers = False

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        if self.answers:
            raise RecordError("unknown_schema", "none")
        raise SchemaPendingError("schema id 7 is not known yet")

    def id_of(self, record_type: type) -> int:
        raise AssertionError


@pytest.fixture(autouse=True)
def registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    use_registry(registry)
    yield registry
    use_registry(None)


class Message(SimpleNamespace):
    """One record of the log."""

    def __init__(self, partition: int, offset: int, value: bytes) -> None:
        super().__init__(
            topic=lambda: "t",
            partition=lambda: partition,
            offset=lambda: offset,
            value=lambda: value,
            error=lambda: None,
        )


class FakeConsumer:
    """Hands over what it was given, and notes pauses."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.calls: list[str] = []

    def poll(self, _: float) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    def consume(self, count: int, _: float) -> list[Message]:
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    def pause(self, places: list[TopicPartition]) -> None:
        self.calls += [f"pause {place.partition}" for place in places]

    def resume(self, places: list[TopicPartition]) -> None:
        self.calls += [f"resume {place.partition}" for place in places]

    def seek(self, place: TopicPartition) -> None:
        self.calls.append(f"seek {place.partition} to {place.offset}")


def places(messages: Any) -> list[tuple[int, int]]:
    return [(message.partition(), message.offset()) for message in messages]


def test_a_replica_takes_the_work_of_the_other_partitions(registry: FakeRegistry) -> None:
    consumer: Any = FakeConsumer(Message(0, 5, PENDING), Message(1, 8, KNOWN), Message(0, 6, KNOWN))
    route = RouteConsumer.__new__(RouteConsumer)
    route._consumer, route.held, route._trackers = consumer, HeldPartitions(consumer), {}
    assert places(route.take(0.1, 64)) == [(1, 8)]
    assert consumer.calls == ["pause 0"]
    registry.answers = True
    consumer.messages = [Message(1, 9, KNOWN)]
    assert places(route.take(0.1, 64)) == [(1, 9)]
    assert consumer.calls == ["pause 0", "seek 0 to 5", "resume 0"]
    consumer.messages = [Message(0, 5, PENDING), Message(0, 6, KNOWN)]
    assert places(route.take(0.1, 64)) == [(0, 5), (0, 6)]


def test_a_router_does_not_pass_over_a_request_that_it_cannot_read(registry: FakeRegistry) -> None:
    consumer: Any = FakeConsumer()
    router = RouterWorker.__new__(RouterWorker)
    router._consumer, router._held, router._requests = consumer, HeldPartitions(consumer), "t"
    router._next_offsets = {0: 5}
    for message in (Message(0, 5, PENDING), Message(0, 6, KNOWN)):
        router._handle_request(message, 1)  # type: ignore[arg-type]
    assert router._next_offsets == {0: 5}
    # Whatever else pauses and resumes requests leaves it alone.
    router._is_paused, router._next_offsets = True, {0: 5, 1: 3}
    router._pause(False)
    assert consumer.calls == ["pause 0", "resume 1"]


def test_a_router_puts_an_answer_that_it_cannot_read_aside(registry: FakeRegistry) -> None:
    refused: list[Any] = []
    router = RouterWorker.__new__(RouterWorker)
    router._decode_answer = Decoder((RankingAnswer,)).decode
    router._unread_answers = deque(maxlen=2)
    router._dead_letter = lambda message, error, topic: refused.append(error.reason)  # type: ignore[method-assign,assignment,misc]
    message: Any = Message(0, 5, PENDING)
    router._handle_answer(message)
    assert (refused, list(router._unread_answers)) == ([], [message])
    registry.answers = True
    router._handle_answer(router._unread_answers.popleft())
    assert refused == ["unknown_schema"]


def test_a_follower_hands_a_record_over_once_it_can_be_read(registry: FakeRegistry) -> None:
    handed: list[Any] = []
    follower = Follower.__new__(Follower)
    follower._topic, follower._on_message, follower._stopping = "t", handed.append, threading.Event()
    following = threading.Thread(target=follower._hand_over, args=[message := Message(0, 5, PENDING)])
    following.start()
    assert handed == []
    registry.answers = True
    following.join(60)
    assert handed == [message]


def test_a_follower_that_is_closed_waits_no_longer() -> None:
    follower = Follower.__new__(Follower)
    follower._topic, follower._on_message, follower._stopping = "t", pytest.fail, threading.Event()  # type: ignore[assignment]
    following = threading.Thread(target=follower._hand_over, args=[Message(0, 5, PENDING)])
    following.start()
    follower._stopping.set()
    following.join(60)
    assert not following.is_alive()
