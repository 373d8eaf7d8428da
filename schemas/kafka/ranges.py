"""Reading topics without a consumer group: a range of each partition, or what is there now. Nothing is committed."""

import time
from collections.abc import Iterable, Iterator, Mapping
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
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
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


def offsets_at(
    consumer: Consumer, topic: str, spans: Mapping[int, tuple[int, int]], time_ms: int, *, timeout_s: float = 10.0
) -> dict[int, int]:
    """Of each partition the first record stamped ``time_ms`` or later, its end where there is none.

    ``spans`` are those of ``watermarks``. Raises BrokerError.
    """
    asked = [TopicPartition(topic, partition, max(0, time_ms)) for partition in spans]
    try:
        found = consumer.offsets_for_times(asked, timeout=timeout_s)
    except KafkaException as error:
        raise BrokerError(f"{topic}: {error.args[0].str()}") from error
    offsets = {}
    for place in found:
        if place.error is not None:
            raise BrokerError(f"{topic}[{place.partition}]: {place.error.str()}")
        low, high = spans[place.partition]
        # A negative offset says that nothing is that young.
        offsets[place.partition] = max(low, place.offset) if place.offset >= 0 else high
    return offsets


def is_passing(error: KafkaError) -> bool:
    """Whether a client overcomes an error by itself, once the broker is back."""
    return error.code() in _PASSING


def poll_batch(consumer: Consumer, timeout_s: float, *, max_batch: int = MAX_BATCH) -> list[Message]:
    """Block for the first record, then take what is there: `consume` alone would wait for a full batch."""
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    return [first, *consumer.consume(max_batch - 1, 0)]


def read_ranges(
    base_config: dict[str, Any], topic: str, ranges: dict[int, tuple[int, int]], *, timeout_s: float = 30.0
) -> Iterator[Message]:
    """Records of each partition from its first offset up to, not including, its end.

    Raises BrokerError when no record comes for ``timeout_s``.
    """
    remaining = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
    if not remaining:
        return
    consumer = Consumer(consumer_config(base_config, f"{topic}.read", **{"enable.partition.eof": True}))
    try:
        consumer.assign([TopicPartition(topic, partition, span[0]) for partition, span in remaining.items()])
        deadline = time.monotonic() + timeout_s
        while remaining:
            messages = poll_batch(consumer, 0.1)
            if messages:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() >= deadline:
                raise BrokerError(f"{topic}: no record of partitions {sorted(remaining)} for {timeout_s:g} s")
            for message in messages:
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


def read_to_end(config: dict[str, Any], topic: str, *, timeout_s: float = 30.0) -> Iterator[Message]:
    """Yield every record of a topic up to the end that each partition has at the call, in order within a partition.

    ``config`` is that of ``client_config``. Raises BrokerError when the broker does not answer or has no such topic.
    """
    consumer = Consumer(consumer_config(config, f"{topic}.read"))
    try:
        numbers = range(num_partitions(consumer, topic, timeout_s=timeout_s))
        spans = watermarks(consumer, topic, numbers, timeout_s=timeout_s)
    finally:
        consumer.close()
    yield from read_ranges(config, topic, spans, timeout_s=timeout_s)


def latest_by_key(config: dict[str, Any], topic: str, *, timeout_s: float = 30.0) -> dict[bytes, bytes]:
    """The last value of each key of a compacted topic; a key whose last value is empty is left out."""
    latest: dict[bytes, bytes] = {}
    for message in read_to_end(config, topic, timeout_s=timeout_s):
        key, value = message.key(), message.value()
        if key is None:
            continue
        if value:
            latest[key] = value
        else:
            latest.pop(key, None)
    return latest
