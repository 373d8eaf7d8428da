"""Follows a topic from its beginning, without a consumer group: no offsets kept, nothing rebalanced."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from schemas.kafka.admin import BrokerError
from schemas.kafka.config import consumer_config
from schemas.kafka.metadata import num_partitions
from schemas.kafka.ranges import poll_batch, watermarks


class TopicTail:
    """Reads every partition of one topic from its beginning and follows it."""

    def __init__(
        self, base_config: dict[str, Any], topic: str, *, on_message: Callable[[Message], None], timeout_s: float = 10.0
    ) -> None:
        """Start at the first record of each partition; raises BrokerError when the broker or the topic is away."""
        self._consumer = Consumer(consumer_config(base_config, f"{topic}.tail"))
        self._on_message = on_message
        try:
            numbers = range(num_partitions(self._consumer, topic, timeout_s=timeout_s))
            spans = watermarks(self._consumer, topic, numbers, timeout_s=timeout_s)
        except BrokerError:
            self._consumer.close()
            raise
        # What stands there now must be read before anyone may rely on it.
        self._behind = {number: high for number, (low, high) in spans.items() if low < high}
        self._consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in spans.items()])

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that stood in the topic at the start has been read."""
        return not self._behind

    def poll(self, timeout_s: float) -> None:
        """Wait for records and hand them over, one by one."""
        for message in poll_batch(self._consumer, timeout_s):
            if message.error() is None:
                self._on_message(message)
        if self._behind:
            self._note_progress()

    def _note_progress(self) -> None:
        for place in self._consumer.position(self._consumer.assignment()):
            if place.partition in self._behind and place.offset >= self._behind[place.partition]:
                del self._behind[place.partition]

    def close(self) -> None:
        self._consumer.close()
