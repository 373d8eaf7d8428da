"""Reading one range of one partition in large batches, and knowing when it is over."""

import time
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.kafka.admin import BrokerError
from schemas.kafka.config import consumer_config
from schemas.kafka.ranges import is_passing, poll_batch

_SILENCE_S: Final = 30.0
_POLL_S: Final = 0.1
_FETCH: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    # What an aborted transaction of a killed process left is not there.
    "isolation.level": "read_committed",
    # A hole that retention tears into the range must not be stepped over in silence.
    "auto.offset.reset": "error",
    "fetch.min.bytes": 1 << 16,
    "fetch.wait.max.ms": 50,
    "queued.max.messages.kbytes": 32_768,
}


class RangeReader:
    """Records of ``[start, end)`` of a partition. Joins no group; ``name`` is only what librdkafka asks for."""

    def __init__(self, config: dict[str, Any], name: str, *, topic: str, partition: int, start: int, end: int) -> None:
        self._place = f"{topic}[{partition}]"
        self._end = end
        self._consumer = Consumer(consumer_config(config, name, **_FETCH))
        self.is_over = start >= end
        if not self.is_over:
            self._consumer.assign([TopicPartition(topic, partition, start)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, max_records: int) -> list[Message]:
        """The next records, none when the range is over; raises BrokerError when nothing comes for long."""
        deadline_s = time.monotonic() + _SILENCE_S
        while not self.is_over:
            try:
                batch = poll_batch(self._consumer, _POLL_S, max_batch=max_records)
            except KafkaException as error:
                raise BrokerError(f"{self._place}: {error.args[0].str()}") from error
            records = self._records(batch)
            if records:
                return records
            if time.monotonic() > deadline_s:
                raise BrokerError(f"{self._place}: no record for {_SILENCE_S:g} s")
        return []

    def _records(self, batch: list[Message]) -> list[Message]:
        records = []
        for message in batch:
            error, offset = message.error(), message.offset()
            if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise BrokerError(f"{self._place}: retention has removed records that are still to be read")
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if is_passing(error):
                    continue
                raise BrokerError(f"{self._place}: {error.str()}")
            if offset is None:
                continue
            if error is None and offset < self._end:
                records.append(message)
            # The end of the partition counts as its last record: control records leave gaps.
            if offset + 1 >= self._end:
                self.is_over = True
                break
        return records
