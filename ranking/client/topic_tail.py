"""Follows topics, or reads a range of one, without a consumer group: no offsets kept, nothing rebalanced."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.kafka.admin import BrokerError
from schemas.kafka.config import consumer_config
from schemas.kafka.metadata import num_partitions

# A broker that has just created a topic, or elected a leader, says so with these for a moment.
_PASSING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
MAX_BATCH = 64


def watermarks(
    consumer: Consumer, topic: str, partitions: Iterable[int], *, timeout_s: float = 10.0
) -> dict[int, tuple[int, int]]:
    """First offset and end of each partition, asked of the broker; raises BrokerError when it does not say."""
    deadline = time.monotonic() + timeout_s
    found: dict[int, tuple[int, int]] = {}
    for partition in partitions:
        while partition not in found:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
                found[partition] = (low, high)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() >= deadline:
                    raise BrokerError(f"{topic}[{partition}]: {error.args[0].str()}") from error
                time.sleep(0.02)
    return found


def poll_batch(consumer: Consumer, timeout_s: float) -> list[Message]:
    """Block for the first record, then take what is there: `consume` alone would wait for a full batch."""
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    return [first, *consumer.consume(MAX_BATCH - 1, 0)]


def read_ranges(
    base_config: dict[str, Any], topic: str, ranges: dict[int, tuple[int, int]], *, timeout_s: float = 30.0
) -> Iterator[Message]:
    """Records of each partition from its first offset up to, not including, its end.

    Raises BrokerError when they are not read in time.
    """
    remaining = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
    if not remaining:
        return
    consumer = Consumer(consumer_config(base_config, f"{topic}.read", **{"enable.partition.eof": True}))
    try:
        consumer.assign([TopicPartition(topic, partition, span[0]) for partition, span in remaining.items()])
        deadline = time.monotonic() + timeout_s
        while remaining:
            if time.monotonic() >= deadline:
                raise BrokerError(f"{topic}: partitions {sorted(remaining)} could not be read within {timeout_s:g} s")
            for message in poll_batch(consumer, 0.1):
                partition, offset = message.partition(), message.offset()
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if error.code() in _PASSING:
                        continue
                    raise BrokerError(f"{topic}: {error.str()}")
                if partition not in remaining or offset is None:
                    continue
                # The end of the partition counts as its last record: compaction and control records leave gaps.
                if error is None and offset < remaining[partition][1]:
                    yield message
                if offset + 1 >= remaining[partition][1]:
                    del remaining[partition]
    finally:
        consumer.close()


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
