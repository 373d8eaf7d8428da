"""A partition is held at a record whose schema is not known yet; the others go on, and nothing is skipped."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import use_registry
from schemas.kafka.held import HeldPartitions

PENDING = b"\0\0\0\0\x07body"
REFUSED = b"\0\0\0\0\x08body"
KNOWN = b"\xc3\x01whatever"


class FakeRegistry:
    """Knows nothing of id 7 until it is told; 8 is nothing."""

    knows = False

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        if schema_id == 8:
            raise RecordError("unknown_schema", "none")
        if not self.knows:
            raise SchemaPendingError("schema id 7 is not known yet")
        return "Any", None

    def id_of(self, record_type: type) -> int:
        raise AssertionError


class FakeConsumer:
    """Notes what it is told; a partition that is not assigned is refused."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.is_assigned = True

    def _note(self, what: str, places: list[TopicPartition]) -> None:
        if not self.is_assigned:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.calls += [(what, place.partition, place.offset) for place in places]

    def pause(self, places: list[TopicPartition]) -> None:
        self._note("pause", places)

    def resume(self, places: list[TopicPartition]) -> None:
        self._note("resume", places)

    def seek(self, place: TopicPartition) -> None:
        self._note("seek", [place])


class FakeMessage:
    def __init__(self, partition: int, offset: int, value: bytes) -> None:
        self._place = ("t", partition, offset)
        self._value = value

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def value(self) -> bytes:
        return self._value


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    use_registry(registry)
    yield registry
    use_registry(None)


def ready(held: HeldPartitions, *messages: FakeMessage) -> list[int]:
    return [message.offset() for message in messages if held.is_ready(message)]  # type: ignore[arg-type]


def made() -> tuple[HeldPartitions, FakeConsumer]:
    consumer = FakeConsumer()
    return HeldPartitions(consumer), consumer  # type: ignore[arg-type]


def test_a_partition_is_held_from_the_record_on_and_others_are_not(registry: FakeRegistry) -> None:
    held, consumer = made()
    messages = [FakeMessage(0, 1, KNOWN), FakeMessage(0, 2, PENDING), FakeMessage(0, 3, KNOWN)]
    assert ready(held, *messages, FakeMessage(1, 10, KNOWN), FakeMessage(0, 4, KNOWN)) == [1, 10]
    assert [call[:2] for call in consumer.calls] == [("pause", 0)]
    assert held.holds("t", 0)
    assert not held.holds("t", 1)
    assert held.trouble() == "t[0] waits: schema id 7 is not known yet"


def test_it_goes_on_at_the_record_once_its_schema_is_known(registry: FakeRegistry) -> None:
    held, consumer = made()
    assert ready(held, FakeMessage(0, 2, PENDING)) == []
    held.release_known()
    assert held.holds("t", 0)
    registry.knows = True
    held.release_known()
    assert held.trouble() is None
    # Back to the record first: resumed before, the records behind it could come first.
    assert [call[0] for call in consumer.calls] == ["pause", "seek", "resume"]
    assert consumer.calls[1] == ("seek", 0, 2)
    assert ready(held, FakeMessage(0, 2, PENDING), FakeMessage(0, 3, KNOWN)) == [2, 3]


def test_an_id_that_is_nothing_holds_nobody_up(registry: FakeRegistry) -> None:
    held, consumer = made()
    assert ready(held, FakeMessage(0, 2, REFUSED)) == [2]
    assert consumer.calls == []


def test_a_new_assignment_holds_nothing(registry: FakeRegistry) -> None:
    held, consumer = made()
    assert ready(held, FakeMessage(0, 2, PENDING)) == []
    held.release_all()
    assert held.trouble() is None
    # Where it is read from is for the assignment to say.
    assert [call[0] for call in consumer.calls] == ["pause", "resume"]


def test_a_partition_that_is_not_ours_any_more_is_let_go(registry: FakeRegistry) -> None:
    held, consumer = made()
    consumer.is_assigned = False
    assert ready(held, FakeMessage(0, 2, PENDING)) == []
    registry.knows = True
    held.release_known()
    assert held.trouble() is None
    assert ready(held, FakeMessage(0, 2, PENDING)) == [2]


def test_without_a_registry_nothing_is_held() -> None:
    held, consumer = made()
    assert ready(held, FakeMessage(0, 2, PENDING)) == [2]
    assert consumer.calls == []
