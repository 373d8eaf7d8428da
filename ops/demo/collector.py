"""Feeds the ledger and the live view from the topics of one pipeline, from their beginning, as they grow."""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ops.demo.ledger import Ledger
from ops.status.facts import Facts
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import BATCHED_FETCH, Config
from schemas.topics import (
    CAPACITY_POOLS,
    CONTROL_CELLS,
    CONTROL_TARGETS,
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    RANKING_ANSWERS,
    RANKING_OUTCOMES,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    SERVING_LATENCY,
    TOPICS,
    Namespace,
)

WATCHED: Final = (
    RANKING_REQUESTS,
    RANKING_RESULTS,
    RANKING_ANSWERS,
    RANKING_OUTCOMES,
    FLEET_CAPACITY,
    SERVING_LATENCY,
    CONTROL_CELLS,
    CONTROL_WINDOWS,
    CONTROL_TARGETS,
    CAPACITY_POOLS,
)
_TIMEOUT_S: Final = 15.0
_BATCH: Final = 500


class Collector:
    """Reads every watched topic and all dead letters without a group.

    What comes is added to ``ledger``, which holds all of it, and to ``facts``, which hold the present.
    """

    def __init__(self, config: Config, namespace: Namespace, ledger: Ledger, facts: Facts | None = None) -> None:
        self._ledger = ledger
        self._facts = Facts() if facts is None else facts
        self._decoders = {namespace.topic(topic): Decoder(topic.record_types) for topic in WATCHED}
        self._dead_letters = {namespace.dead_letters(topic): topic.name for topic in TOPICS}
        self._consumer = Consumer(
            {**config, "group.id": "intertidal.collector", "enable.auto.commit": False, **BATCHED_FETCH}
        )
        self._places = self._find_partitions()
        self._consumer.assign([TopicPartition(name, partition, 0) for name, partition in self._places])

    def poll(self, budget_s: float) -> int:
        """Take in what comes within ``budget_s`` seconds; returns the number of records."""
        deadline = time.monotonic() + budget_s
        taken = 0
        while (left_s := deadline - time.monotonic()) > 0:
            messages = self._consumer.consume(_BATCH, min(left_s, 0.1))
            for message in messages:
                self._take(message)
            taken += len(messages)
        return taken

    def drain(self) -> None:
        """Take in everything that is in the topics now; raises BrokerError when it does not come."""
        ends = {place: self._end(place) for place in self._places}
        last_progress = time.monotonic()
        while behind := self._behind(ends):
            if self.poll(0.2):
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > _TIMEOUT_S:
                raise BrokerError(f"no record of {behind[0]} for {_TIMEOUT_S:g} s, before its end")

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        name = message.topic() or ""
        if name in self._dead_letters:
            self._ledger.add_dead_letter(self._dead_letters[name])
            return
        try:
            record = self._decoders[name].decode(message.value())
        except RecordError:
            # Whoever owns the topic dead-letters it; it is counted there.
            return
        append_ms = message.timestamp()[1]
        self._ledger.add(record, append_ms=append_ms)
        self._facts.add(record, append_ms=append_ms)

    def _find_partitions(self) -> list[tuple[str, int]]:
        topics = self._consumer.list_topics(timeout=_TIMEOUT_S).topics
        names = [*self._decoders, *self._dead_letters]
        missing = [name for name in names if name not in topics]
        if missing:
            raise BrokerError(f"topic {missing[0]} does not exist; run `intertidal topics create`")
        return [(name, partition) for name in names for partition in topics[name].partitions]

    def _end(self, place: tuple[str, int]) -> int:
        return int(self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_TIMEOUT_S)[1])

    def _behind(self, ends: dict[tuple[str, int], int]) -> list[str]:
        positions = self._consumer.position([TopicPartition(*place) for place in self._places])
        return [
            f"{position.topic}[{position.partition}]"
            for position in positions
            if ends[position.topic, position.partition] > max(position.offset, 0)
        ]
