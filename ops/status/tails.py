"""Bounded reading of many partitions at once: assigned, never subscribed; no group is joined, nothing committed."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config, consumer_config

Place = tuple[str, int]

_TIMEOUT_S: Final = 10.0
_BATCH: Final = 500
# The consumer fetches ahead: this bounds what it holds, whatever the backlog behind a place that is looked at.
_LIMITS: Final[Config] = {"max.partition.fetch.bytes": 1 << 18, "queued.max.messages.kbytes": 16_384}


@dataclass(frozen=True, kw_only=True)
class Span:
    """Offsets to read, the end not included; at most ``num_records`` of them where that is given."""

    start: int
    end: int
    num_records: int | None = None


class Tails:
    """One consumer for all reading of a look, kept from one look to the next."""

    def __init__(self, config: Config) -> None:
        # A consumer needs a name of a group even if it never joins one.
        self._consumer = Consumer(
            consumer_config(config, "intertidal.status", **{"enable.partition.eof": True}, **_LIMITS)
        )

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, spans: Mapping[Place, Span]) -> Iterator[Message]:
        """Yield the records of each span, in order within a partition; raises BrokerError when they do not come."""
        left = {place: span for place, span in spans.items() if span.start < span.end}
        if not left:
            return
        taken = dict.fromkeys(left, 0)
        last_error = "no record came"
        try:
            self._consumer.assign([TopicPartition(*place, span.start) for place, span in left.items()])
            deadline = time.monotonic() + _TIMEOUT_S
            while left:
                messages = _next(self._consumer)
                if not messages and time.monotonic() > deadline:
                    place = next(iter(left))
                    raise BrokerError(f"{place[0]}[{place[1]}] cannot be read within {_TIMEOUT_S:g} s: {last_error}")
                for message in messages:
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        # A broker that is electing a leader says so for a moment: the deadline decides.
                        last_error = error.str()
                        continue
                    place = (message.topic() or "", message.partition() or 0)
                    span, offset = left.get(place), message.offset()
                    if span is None or offset is None:
                        continue
                    if error is None and offset < span.end:
                        taken[place] += 1
                        yield message
                    # Whoever takes its time with a record is not waiting for one.
                    deadline = time.monotonic() + _TIMEOUT_S
                    # The end of the partition counts as its last record: compaction leaves gaps.
                    if offset + 1 >= span.end or taken[place] == span.num_records:
                        del left[place]
        except KafkaException as error:
            raise BrokerError(f"cannot read: {error.args[0].str()}") from error
        finally:
            self._consumer.unassign()


def _next(consumer: Consumer) -> list[Message]:
    """Block for the first record, then take what is there: `consume` alone waits for a full batch."""
    first = consumer.poll(0.1)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0.0)]
