"""Declared cells as they come in: read to the end before the first raw record, then continuously."""

import time
from collections import deque
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ops.telemetry.logs import get_log
from schemas.errors import RecordError, SchemaPendingError
from schemas.kafka.admin import BrokerError
from schemas.topics import CONTROL_CELLS, Namespace
from streams.ingest.cells import Cells

log = get_log(__name__)

_BATCH = 256


class CellLog:
    """Keeps a view of the declared cells up to date from their log, without a group.

    A declaration that cannot be read or believed is logged and left out: what was declared before stands. One whose
    schema is not known yet waits, and so does what comes behind it.
    """

    def __init__(self, config: dict[str, Any], namespace: Namespace, cells: Cells, *, num_partitions: int) -> None:
        self._topic = namespace.topic(CONTROL_CELLS)
        self._cells = cells
        self._ends_missing = set(range(num_partitions))
        self._waiting: deque[Message] = deque()
        self._why_waiting: str | None = None
        self._consumer = Consumer(
            # librdkafka wants a group's name for every consumer; nothing is committed and no group is joined.
            {
                **config,
                "group.id": namespace.group("ingest.cells"),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in range(num_partitions)])

    def read_to_end(self, timeout_s: float = 30.0) -> None:
        """Return once everything in the log has been taken in; raises BrokerError when that takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while self._ends_missing or self._waiting:
            self._take(self._consumer.consume(_BATCH, 0.1))
            if time.monotonic() > deadline_s:
                why = f": {self._why_waiting}" if self._why_waiting else ""
                raise BrokerError(f"cannot read {self._topic} to its end within {timeout_s:g} s{why}")

    def poll(self) -> None:
        """Take in what has come since."""
        self._take(self._consumer.consume(_BATCH, 0.0))

    def trouble(self) -> str | None:
        """Why declarations wait, for readiness; None when none does."""
        return f"{self._topic} waits: {self._why_waiting}" if self._why_waiting else None

    def close(self) -> None:
        """Free the connection."""
        self._consumer.close()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self._waiting.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends_missing.discard(message.partition() or 0)
            else:
                raise_unless_transient(self._topic, error)
        self._why_waiting = None
        while self._waiting and self._why_waiting is None:
            self._read(self._waiting[0])

    def _read(self, message: Message) -> None:
        try:
            self._cells.read(message.key(), message.value())
        except SchemaPendingError as error:
            self._why_waiting = str(error)
            return
        except RecordError as error:
            log.error("declaration left out", topic=self._topic, offset=message.offset(), reason=str(error))
        self._waiting.popleft()


def raise_unless_transient(topic: str, error: KafkaError) -> None:
    """Raise BrokerError unless the client gets over the error by itself, as it does when the broker is away."""
    away = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
    )
    if not error.fatal() and (error.retriable() or error.code() in away):
        log.warning("broker", topic=topic, error=error.str())
        return
    raise BrokerError(f"cannot read {topic}: {error.str()}") from KafkaException(error)
