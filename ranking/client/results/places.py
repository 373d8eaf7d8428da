"""Where a partition of results is begun: where the caller's sink or the group stands, or where a new reader starts."""

from datetime import datetime
from typing import Literal, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ops.telemetry.logs import get_log
from ranking.client.results.partition import PositionError
from schemas.kafka.admin import BrokerError
from schemas.kafka.ranges import offsets_at

_log = get_log(__name__)

# For partitions of which nothing is stored: the first record there is, what comes from now on, or a broker's time.
Start = Literal["earliest", "latest"] | datetime
Span = tuple[int, int]


class Sink(Protocol):
    """Where the caller keeps results, and beside them, in the same transaction, how far it has come."""

    def next_offset(self, partition: int) -> int | None:
        """The ``next_offset`` of the last batch of a partition that was stored; None before the first."""
        ...


def sink_places(sink: Sink, spans: dict[int, Span]) -> dict[int, int]:
    """Where the sink stands in those partitions that it knows; raises PositionError."""
    places = {}
    for partition, (_, end) in spans.items():
        offset = sink.next_offset(partition)
        if offset is None:
            continue
        if not 0 <= offset <= end:
            raise PositionError(f"partition {partition}: the sink stands at offset {offset}, the log ends at {end}")
        places[partition] = offset
    return places


def group_places(consumer: Consumer, topic: str, spans: dict[int, Span], *, timeout_s: float) -> dict[int, int]:
    """Where the group stands in those partitions that it knows; raises BrokerError."""
    asked = [TopicPartition(topic, partition) for partition in spans]
    try:
        committed = consumer.committed(asked, timeout=timeout_s)
    except KafkaException as error:
        raise BrokerError(f"{topic}: {error.args[0].str()}") from error
    places = {}
    for place in committed:
        if place.error is not None:
            raise BrokerError(f"{topic}[{place.partition}]: {place.error.str()}")
        end = spans[place.partition][1]
        if place.offset > end:
            _log.warning("group stands behind the end", partition=place.partition, offset=place.offset, end=end)
        elif place.offset >= 0:
            places[place.partition] = place.offset
    return places


def start_places(
    consumer: Consumer, topic: str, spans: dict[int, Span], start: Start, *, timeout_s: float
) -> dict[int, int]:
    """Where a new reader begins in each partition; raises BrokerError."""
    if isinstance(start, datetime):
        return offsets_at(consumer, topic, spans, round(start.timestamp() * 1e3), timeout_s=timeout_s)
    return {partition: low if start == "earliest" else high for partition, (low, high) in spans.items()}


def check_start(start: Start, *, has_sink: bool) -> None:
    """Raise ValueError for a start that is none, or under which a sink could miss something."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError(f"start: {start} has no zone")
    elif start not in ("earliest", "latest"):
        raise ValueError(f"start must be earliest, latest or a datetime, not {start!r}")
    elif start == "latest" and has_sink:
        raise ValueError("a sink begins at earliest or at a fixed time: before its first batch it stores no place")
