"""The log of one topic on the broker: from where to where it is read, and its records as they come."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.kafka.admin import BrokerError
from schemas.kafka.config import BATCHED_FETCH, Config, consumer_config
from schemas.kafka.metadata import num_partitions
from schemas.kafka.ranges import is_passing, offsets_at, poll_batch, watermarks

_TIMEOUT_S: Final = 10.0
# A log that is read to its end, and whose broker says nothing for so long, is given up.
_SILENCE_S: Final = 30.0
_MAX_BATCH: Final = 500
# What the client fetches ahead.
_QUEUE_KIB: Final = 32_768


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What a topic holds: its cluster, and of each partition the first offset, the end and where the times begin.

    ``since`` and ``until`` are first offsets at those times; where a time was not given, the first offset and the end.
    """

    cluster: str
    lows: Mapping[int, int]
    ends: Mapping[int, int]
    since: Mapping[int, int]
    until: Mapping[int, int]


def extent(config: Config, topic: str, *, since_ms: int | None, until_ms: int | None) -> Extent:
    """What a topic holds now; raises BrokerError."""
    consumer = Consumer(consumer_config(config, f"{topic}.read"))
    try:
        numbers = range(num_partitions(consumer, topic, timeout_s=_TIMEOUT_S))
        try:
            cluster = consumer.list_topics(topic, timeout=_TIMEOUT_S).cluster_id
        except KafkaException as error:
            raise BrokerError(f"no answer from the broker: {error.args[0].str()}") from error
        spans = watermarks(consumer, topic, numbers, timeout_s=_TIMEOUT_S)
        lows = {number: low for number, (low, _) in spans.items()}
        ends = {number: end for number, (_, end) in spans.items()}
        since = lows if since_ms is None else offsets_at(consumer, topic, spans, since_ms)
        until = ends if until_ms is None else offsets_at(consumer, topic, spans, until_ms)
    finally:
        consumer.close()
    return Extent(cluster=cluster or "", lows=lows, ends=ends, since=since, until=until)


def read_log(
    config: Config,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None,
    *,
    is_stopped: Callable[[], bool],
) -> Iterator[list[Message]]:
    """Records from where each partition starts to its end, for ever where no ends are given, or until it is stopped.

    A list is empty when nothing came for a moment. While a broker is away, one who follows waits for it; for who reads
    to an end, BrokerError is raised after half a minute, as for every error that does not pass.
    """
    remaining = None if ends is None else {number: ends[number] for number in starts if starts[number] < ends[number]}
    numbers = starts if remaining is None else remaining
    if not numbers:
        return
    consumer = Consumer(
        consumer_config(
            config,
            f"{topic}.read",
            **BATCHED_FETCH,
            **{"enable.partition.eof": True, "queued.max.messages.kbytes": _QUEUE_KIB},
        )
    )
    try:
        consumer.assign([TopicPartition(topic, number, starts[number]) for number in numbers])
        deadline_s = time.monotonic() + _SILENCE_S
        while not is_stopped() and (remaining is None or remaining):
            heard = poll_batch(consumer, 0.1, max_batch=_MAX_BATCH)
            if heard:
                deadline_s = time.monotonic() + _SILENCE_S
            elif remaining is not None and time.monotonic() >= deadline_s:
                raise BrokerError(f"{topic}: no record of partitions {sorted(remaining)} for {_SILENCE_S:g} s")
            yield [message for message in heard if _is_wanted(message, remaining)]
    finally:
        consumer.close()


def _is_wanted(message: Message, remaining: dict[int, int] | None) -> bool:
    """Whether a message is a record to hand over; notes where a partition has come to its end. Raises BrokerError."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        if is_passing(error):
            return False
        raise BrokerError(f"{message.topic()}: {error.str()}")
    if remaining is None:
        return error is None
    partition, offset = message.partition(), message.offset()
    if partition not in remaining or offset is None:
        return False
    end = remaining[partition]
    # The end of the partition counts as its last record: compaction and control records leave gaps.
    if offset + 1 >= end:
        del remaining[partition]
    return error is None and offset < end
