"""One route's work topic: assignment, taking batches, and commits of what is finished."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from ops.telemetry.logs import get_log
from ranking.client.broker_time import local_ms
from ranking.clock import BrokerClock
from ranking.consumer.options import RankerOptions
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import client_config, consumer_config, quick_failover
from schemas.kafka.fatal import ends_reading
from schemas.kafka.held import HeldPartitions
from schemas.kafka.metadata import num_partitions
from schemas.kafka.offsets import OffsetTracker
from schemas.records.fields import Route
from schemas.topics import WORK_BY_ROUTE

METADATA_TIMEOUT_S: Final = 10.0
REVOKE_TIMEOUT_S: Final = 1.0
# Opportunistic replicas drop a backlog unread: what the client fetches ahead of them would only take memory.
OPTIONAL_FETCH: Final = {"queued.max.messages.kbytes": 16_384}

_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a task came from: its place in the log, how to say that it is finished, and its answer's headers."""

    tracker: OffsetTracker
    offset: int
    finished: "SimpleQueue[Origin]"
    headers: tuple[tuple[str, bytes | None], ...]

    def finished_by(self, _: Message) -> None:
        """Its answer is durable. From any thread."""
        self.finished.put(self)


class RouteConsumer:
    """The consumer of one route, used by the thread that reads it.

    ``forget`` drops what was handed over and not yet begun, and returns how much that was. Whoever finishes a record
    says so in a queue, as trackers belong to the reading thread alone.
    """

    def __init__(self, options: RankerOptions, route: Route, *, clock: BrokerClock, forget: Callable[[], int]) -> None:
        self.route = route
        self.topic = options.namespace.topic(WORK_BY_ROUTE[route])
        self.dead_letters = options.namespace.dead_letters(WORK_BY_ROUTE[route])
        self._backlog_ms = options.backlog_ms
        self._clock = clock
        self._forget = forget
        self._trackers: dict[int, OffsetTracker] = {}
        self._committed: dict[int, int] = {}
        self._finished: SimpleQueue[Origin] = SimpleQueue()
        self.was_assigned = False
        static_id = f"{options.ranker_id}.{route}" if options.static_member and route == "baseline" else None
        self._consumer = Consumer(
            consumer_config(
                client_config(f"{options.ranker_id}.{route}"),
                options.namespace.group(f"ranker.{route}"),
                **quick_failover(static_id=static_id),
                **({} if route == "baseline" else OPTIONAL_FETCH),
            )
        )
        self.held = HeldPartitions(self._consumer)

    @property
    def num_open(self) -> int:
        """Work taken and not yet answered and acknowledged. From any thread: right to within a pass."""
        return max(0, sum(tracker.num_open for tracker in self._trackers.values()) - self._finished.qsize())

    def num_partitions(self, topic: str) -> int:
        """Partitions of a topic. Raises BrokerError where broker or topic is not there."""
        return num_partitions(self._consumer, topic, timeout_s=METADATA_TIMEOUT_S)

    def subscribe(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def take(self, wait_s: float, max_records: int) -> list[Message]:
        """Wait for the first record, then take what is there. Raises BrokerError on a fatal error."""
        self.held.release_known()
        first = self._consumer.poll(wait_s)
        if first is None:
            return []
        assignment = self._trackers
        messages = self._consumer.consume(max_records - 1, 0) if max_records > 1 else []
        # Taken under an assignment that has ended meanwhile, it is not ours to finish: it will be read again.
        if assignment is self._trackers:
            messages.insert(0, first)
        return [message for message in messages if self._is_record(message) and self.held.is_ready(message)]

    def begin(self, message: Message, headers: tuple[tuple[str, bytes | None], ...]) -> Origin:
        """Note a record taken in; the origin learns when it is finished."""
        # One that belongs to no partition of ours is answered, but leads to no commit.
        tracker = self._trackers.get(message.partition() or 0) or OffsetTracker()
        offset = message.offset() or 0
        tracker.begin(offset)
        return Origin(tracker, offset, self._finished, headers)

    def commit(self, *, wait: bool = False) -> None:
        """Commit each partition up to its first unfinished record; a failure only means more to read again."""
        self._note_finished()
        offsets = {
            partition: offset
            for partition, tracker in self._trackers.items()
            if (offset := tracker.committable()) is not None and (wait or offset != self._committed.get(partition))
        }
        if not offsets:
            return
        positions = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        try:
            if wait:
                self._consumer.commit(offsets=positions, asynchronous=False)
            else:
                self._consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            _log.warning("commit failed", topic=self.topic, error=error.args[0].str())
        else:
            self._committed |= offsets

    def close(self) -> None:
        """Leave the group, unless the member is static."""
        self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if ends_reading(error) or error.code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            raise BrokerError(f"{self.topic}: {error.str()}")
        _log.warning("broker", topic=self.topic, error=error.str())
        return False

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.was_assigned = True
        self._trackers = {partition.partition: OffsetTracker() for partition in partitions}
        self._committed.clear()
        if self.route != "baseline" and partitions:
            try:
                partitions = self._past_backlog(consumer, partitions)
            except KafkaException as error:
                _log.warning("backlog not skipped", topic=self.topic, error=error.args[0].str())
        consumer.assign(partitions)
        self.held.release_all()
        _log.info("partitions assigned", topic=self.topic, partitions=sorted(self._trackers))

    def _past_backlog(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where to begin: at what is committed, but not at work that nobody waits for any more."""
        since_ms = int(self._clock.broker_ms(local_ms())) - self._backlog_ms
        asked = [TopicPartition(self.topic, partition.partition, since_ms) for partition in partitions]
        # The ends come first: work that arrives while the rest is asked stands behind them, and is not skipped.
        ends = [consumer.get_watermark_offsets(place, timeout=REVOKE_TIMEOUT_S)[1] for place in asked]
        recent = consumer.offsets_for_times(asked, timeout=REVOKE_TIMEOUT_S)
        committed = consumer.committed(partitions, timeout=REVOKE_TIMEOUT_S)
        starts: list[TopicPartition] = []
        for end, by_time, by_commit in zip(ends, recent, committed, strict=True):
            # Where nothing was as new as that, begin at what was then the end.
            start = end if by_time.offset < 0 else by_time.offset
            known = by_commit.offset if by_commit.offset != OFFSET_INVALID else 0
            starts.append(TopicPartition(self.topic, by_time.partition, max(start, known)))
        return starts

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """1. what waits is forgotten  2. what is being scored is answered, and that acknowledged, within what a
        rebalance allows  3. offsets are committed  4. the partitions are let go."""
        num_forgotten = self._forget()  # 1
        deadline_s = time.monotonic() + REVOKE_TIMEOUT_S  # 2
        while self.num_open > num_forgotten and (left_s := deadline_s - time.monotonic()) > 0.0:
            self._note_finished(left_s)
        self.commit(wait=True)  # 3
        self._trackers = {}  # 4

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Another member has them: nothing may be committed."""
        self._forget()
        self._trackers = {}

    def _note_finished(self, wait_s: float = 0.0) -> None:
        """Tell the trackers what was finished meanwhile; wait for the first of it if asked to."""
        try:
            origin = self._finished.get(timeout=wait_s) if wait_s else self._finished.get_nowait()
            while True:
                origin.tracker.finish(origin.offset)
                origin = self._finished.get_nowait()
        except Empty:
            return
