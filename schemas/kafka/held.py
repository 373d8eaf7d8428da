"""Partitions held at a record whose schema is not known yet, while the others of the same consumer go on."""

from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from schemas.errors import SchemaPendingError
from schemas.framing import require_schema


class HeldPartitions:
    """Pauses a partition at a record, and lets it go on there once the record's schema is known.

    Records behind it that were fetched already must be dropped by whoever reads (`is_held`): they come again.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        # By place: the record that waits, and why it does.
        self._held: dict[tuple[str, int], tuple[Message, str]] = {}

    def is_held(self, message: Message) -> bool:
        """Whether the message's partition is held, so that the message will come again."""
        return bool(self._held) and self.holds(message.topic(), message.partition())

    def holds(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is held: whoever resumes partitions leaves it out."""
        return (topic, partition) in self._held

    def is_ready(self, message: Message) -> bool:
        """Whether a message may be read; if not, its partition is held at it."""
        if self._held and self.is_held(message):
            return False
        try:
            require_schema(message.value())
        except SchemaPendingError as error:
            self._hold(message, str(error))
            return False
        return True

    def release_known(self) -> bool:
        """Let partitions go on whose record can be read by now; returns whether any does. Cheap where none is held."""
        num_held = len(self._held)
        for place, (message, _) in list(self._held.items()):
            with suppress(SchemaPendingError):
                require_schema(message.value())
                self._release(place)
        return len(self._held) < num_held

    def release_all(self) -> None:
        """Hold nothing any more: the assignment has changed, and records are read from where it says."""
        places = [TopicPartition(*place) for place in self._held]
        self._held.clear()
        for place in places:
            # Being paused outlives an assignment.
            with suppress(KafkaException):
                self._consumer.resume([place])

    def trouble(self) -> str | None:
        """Why something is held, for readiness; None when nothing is."""
        for (topic, partition), (_, why) in list(self._held.items()):
            return f"{topic}[{partition}] waits: {why}"
        return None

    def _hold(self, message: Message, why: str) -> None:
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        self._held[topic, partition] = (message, why)
        # A partition that is not ours any more can be neither paused nor read on, and need not be.
        with suppress(KafkaException):
            self._consumer.pause([TopicPartition(topic, partition)])

    def _release(self, place: tuple[str, int]) -> None:
        message, _ = self._held.pop(place)
        with suppress(KafkaException):
            # To the record itself: it and all that came behind it were dropped.
            self._consumer.seek(TopicPartition(*place, message.offset() or 0))
            self._consumer.resume([TopicPartition(*place)])
