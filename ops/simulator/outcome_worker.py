"""Reads results and sends what users do with them, each outcome when it is due."""

import threading
import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from ops.simulator.broker_access import checked_config
from ops.simulator.outcomes import OutcomeSchedule, Place
from ops.simulator.scenario_model import Scenario
from ops.simulator.world import World
from ops.telemetry.logs import get_log
from schemas.dead_letters import dead_letter_key
from schemas.errors import RecordError
from schemas.framing import decode_as
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import BATCHED_FETCH, BATCHED_SEND, PATIENT_SEND, consumer_config, producer_config
from schemas.kafka.dead_letters import dead_letter
from schemas.kafka.producer import DurableProducer
from schemas.kafka.registry import wait_for_schema
from schemas.records import RankingResult
from schemas.topics import RANKING_OUTCOMES, RANKING_RESULTS, Namespace

PART: Final = "outcomes"
_LONGEST_POLL_S: Final = 0.1
_BATCH: Final = 63
# A registry that is away so long ends the worker; what it has not committed is read again.
_SCHEMA_TIMEOUT_S: Final = 60.0
_COMMIT_EVERY_S: Final = 1.0
_BROKER_TIMEOUT_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.1
_NO_COORDINATOR_YET: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

_LOG = get_log(__name__)


@dataclass(frozen=True, kw_only=True)
class OutcomeReport:
    """What was read and sent, and how many outcomes were still to come when it ended."""

    num_results: int
    num_outcomes_sent: int
    num_outcomes_waiting: int
    num_dead_letters: int


class OutcomeWorker:
    """One reader of all partitions of the results. Whoever starts again goes on at what was committed.

    Partitions are assigned, not subscribed to: one process plays all users, and a group that moves partitions would
    make it forget whom it has shown what.
    """

    def __init__(self, namespace: Namespace, scenario: Scenario, world: World) -> None:
        """Connect; raises ValueError for a wrong setting, BrokerError without broker or topics."""
        self._results_topic = namespace.topic(RANKING_RESULTS)
        self._outcomes_topic = namespace.topic(RANKING_OUTCOMES)
        self._dead_letters_topic = namespace.dead_letters(RANKING_RESULTS)
        config = checked_config(
            "intertidal-outcomes", [self._results_topic, self._outcomes_topic, self._dead_letters_topic]
        )
        self._producer = DurableProducer(producer_config(config, **BATCHED_SEND, **PATIENT_SEND))
        self._consumer = Consumer(consumer_config(config, namespace.group(PART), **BATCHED_FETCH))
        self._schedule = OutcomeSchedule(world, seed=scenario.seed, delay_scale=scenario.outcomes.delay_scale)
        self._num_results = 0
        self._num_sent = 0
        self._num_dead_letters = 0
        try:
            self._consumer.assign(self._starting_points())
        except KafkaException as error:
            self._consumer.close()
            raise BrokerError(f"cannot read {self._results_topic}: {error.args[0].str()}") from error

    def run(self, stop: threading.Event) -> OutcomeReport:
        """Work until ``stop`` is set; raises DeliveryError or BrokerError when the broker refuses.

        At the end 1. everything sent is acknowledged, 2. progress is committed, 3. the consumer leaves. Outcomes not
        due by then stay uncommitted: they are drawn again, the same, by the next run.
        """
        next_commit_s = time.monotonic() + _COMMIT_EVERY_S
        try:
            while not stop.is_set():
                self._read()
                self._send_due()
                if time.monotonic() >= next_commit_s:
                    self._commit(asynchronous=True)
                    next_commit_s = time.monotonic() + _COMMIT_EVERY_S
            self._producer.drain()  # 1
            self._commit(asynchronous=False)  # 2
        finally:
            self._consumer.close()  # 3
        return OutcomeReport(
            num_results=self._num_results,
            num_outcomes_sent=self._num_sent,
            num_outcomes_waiting=self._schedule.num_waiting,
            num_dead_letters=self._num_dead_letters,
        )

    def _starting_points(self) -> list[TopicPartition]:
        metadata = self._consumer.list_topics(self._results_topic, timeout=_BROKER_TIMEOUT_S)
        partitions = [TopicPartition(self._results_topic, p) for p in metadata.topics[self._results_topic].partitions]
        return [
            TopicPartition(
                self._results_topic, place.partition, place.offset if place.offset >= 0 else OFFSET_BEGINNING
            )
            for place in self._committed(partitions)
        ]

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        deadline_s = time.monotonic() + _BROKER_TIMEOUT_S
        while True:
            try:
                return self._consumer.committed(partitions, timeout=_BROKER_TIMEOUT_S)
            except KafkaException as error:
                # The first group on a new broker has to wait for its coordinator.
                if error.args[0].code() not in _NO_COORDINATOR_YET or time.monotonic() > deadline_s:
                    raise
                time.sleep(_LOOK_AGAIN_S)

    def _read(self) -> None:
        due_ms = self._schedule.next_due_ms
        wait_s = _LONGEST_POLL_S if due_ms is None else (due_ms - _now_ms()) / 1_000.0
        first = self._consumer.poll(min(max(wait_s, 0.0), _LONGEST_POLL_S))
        if first is not None:
            for message in (first, *self._consumer.consume(_BATCH, 0)):
                self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise BrokerError(f"cannot read {self._results_topic}: {error.str()}")
            _LOG.warning("reading results", error=error.str())
            return
        place = Place(message.partition() or 0, message.offset() or 0)
        try:
            wait_for_schema(message.value(), timeout_s=_SCHEMA_TIMEOUT_S)
            result = decode_as(message.value(), RankingResult)
        except RecordError as refusal:
            letter = dead_letter(message, refusal, part=PART, stage="decode")
            self._producer.send(
                self._dead_letters_topic,
                letter,
                key=dead_letter_key(letter),
                on_delivered=lambda _: self._schedule.finish(place),
            )
            self._schedule.begin(place)
            self._num_dead_letters += 1
        else:
            self._schedule.take(result, place)
            self._num_results += 1

    def _send_due(self) -> None:
        for outcome, place in self._schedule.due(_now_ms()):
            self._producer.send(
                self._outcomes_topic,
                outcome,
                key=outcome.user_id.encode(),
                on_delivered=lambda _, place=place: self._delivered(place),  # type: ignore[misc]
            )
        self._producer.poll()

    def _delivered(self, place: Place) -> None:
        self._num_sent += 1
        self._schedule.sent(place)

    def _commit(self, *, asynchronous: bool) -> None:
        offsets = [
            TopicPartition(self._results_topic, partition, offset)
            for partition, offset in self._schedule.committable().items()
        ]
        if not offsets:
            return
        try:
            if asynchronous:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # What is not committed is drawn again, the same, by the next run.
            _LOG.warning("progress not committed", error=error.args[0].str())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
