"""The broker's time, learned from an acknowledgement: one record left in the log says nothing of it.

The local clock is the monotonic one: what somebody does to this machine's time of day moves no deadline.
"""

import time

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from ranking.clock import BrokerClock
from schemas.kafka.producer import DurableProducer
from schemas.records import ClockRecord
from schemas.topics import SERVING_LATENCY, Namespace


def local_ms() -> float:
    """This machine's monotonic clock, in milliseconds; `BrokerClock` makes it the broker's."""
    return time.monotonic() * 1000.0


def append_time_ms(message: Message) -> int | None:
    """When the broker appended a message; None where the message does not say, or has another clock's time."""
    kind, timestamp_ms = message.timestamp()
    return timestamp_ms if kind == TIMESTAMP_LOG_APPEND_TIME and timestamp_ms > 0 else None


def observe(clock: BrokerClock, message: Message) -> None:
    """Let a clock learn from a message that was just received, or just acknowledged."""
    append_ms = append_time_ms(message)
    if append_ms is not None:
        clock.observe(receipt_ms=local_ms(), append_ms=append_ms)


def learn_broker_time(
    clock: BrokerClock, producer: DurableProducer, namespace: Namespace, *, writer: str, timeout_s: float = 10.0
) -> None:
    """Teach a clock the broker's time before the first record is read; raises DeliveryError.

    A clock record says only that time has passed, so one more of them changes nothing for its readers.
    """
    for _ in range(2):
        # The second finds the connection open, and so is the closer one.
        producer.send(
            namespace.topic(SERVING_LATENCY),
            ClockRecord(writer=writer),
            partition=0,
            on_delivered=lambda message: observe(clock, message),
        )
        producer.drain(timeout_s)
