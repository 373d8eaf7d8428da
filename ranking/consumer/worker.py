"""Runs a ranking replica on Kafka: work in, answers out, offsets committed once the answers are acknowledged.

One pass of the loop:

    1. take a micro-batch: wait for the first record, then drain what is there
    2. decode; what cannot be believed goes to the dead letters of its topic
    3. run it: base work first, optional work while the permit holds; each answer is sent as soon as it is complete
    4. serve delivery reports, and commit what is answered and acknowledged
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from ops.telemetry.declared import METRICS
from ops.telemetry.health import HealthServer
from ops.telemetry.logs import get_log
from ops.telemetry.metrics import Metrics
from ops.telemetry.stop_signals import on_stop_signals
from ranking.client.broker_time import learn_broker_time, local_ms, observe
from ranking.clock import BrokerClock
from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook
from ranking.consumer.loading import WarmScorer, warm_scorer
from ranking.consumer.options import RankerOptions
from ranking.consumer.permit import Permit
from ranking.consumer.priority import give_way
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.task import IntakeLimits, Moment, Task, task_of
from ranking.consumer.trace import CallTrace
from ranking.models.protocol import EncodedUsers
from schemas.dead_letters import dead_letter_key
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.gate_reader import GateReader
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import PATIENT_SEND, client_config, consumer_config, producer_config, quick_failover
from schemas.kafka.dead_letters import dead_letter, message_headers
from schemas.kafka.fatal import ends_reading
from schemas.kafka.held import HeldPartitions
from schemas.kafka.metadata import num_partitions
from schemas.kafka.offsets import OffsetTracker
from schemas.kafka.producer import DurableProducer
from schemas.kafka.registry import connect_registry
from schemas.records import LatencyInterval, RankingAnswer, RankingWork
from schemas.records.fields import Route
from schemas.topics import RANKING_ANSWERS, SERVING_LATENCY, WORK_BY_ROUTE
from schemas.tracing import trace_from

MAX_BATCH: Final = 64
# Waits for the first record of a batch. Behind an open gate short, so that a closing is acknowledged soon while idle;
# a mixed replica waits at its base topic, and meanwhile cannot see the other one.
IDLE_WAIT_S: Final = 0.1
CLOSED_WAIT_S: Final = 0.05
OPEN_WAIT_S: Final = 0.005
MIXED_WAIT_S: Final = 0.005
COMMIT_EVERY_S: Final = 0.2
METADATA_TIMEOUT_S: Final = 10.0
REVOKE_TIMEOUT_S: Final = 1.0
STALL_S: Final = 15.0

__all__ = ["RankerOptions", "run"]

_log = get_log(__name__)


def run(options: RankerOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises ValueError on bad configuration, BundleError on a bundle that must not be loaded, BrokerError where broker or
    topic is not there, DeliveryError where an answer could not be made durable.
    """
    connect_registry()
    give_way(options.routes, nice=options.nice)
    costs = CostBook()
    warm = warm_scorer(options, costs)
    gate = GateReader(options.pool) if options.pool is not None else None
    try:
        worker = _Worker(options, warm=warm, costs=costs, gate=gate)
        with on_stop_signals(worker.ask_to_stop):
            worker.serve()
    finally:
        if gate is not None:
            gate.close()


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a task came from: who tracks its offset, and the headers that its answer carries."""

    tracker: OffsetTracker
    offset: int
    headers: tuple[tuple[str, bytes | None], ...]


class _RouteConsumer:
    """One route's work topic: assignment, taking batches, and commits of what is finished."""

    def __init__(self, options: RankerOptions, route: Route, *, clock: BrokerClock, settle: Callable[[], None]) -> None:
        self.route = route
        self.topic = options.namespace.topic(WORK_BY_ROUTE[route])
        self.dead_letters = options.namespace.dead_letters(WORK_BY_ROUTE[route])
        self._backlog_ms = options.backlog_ms
        self._clock = clock
        self._settle = settle
        self._trackers: dict[int, OffsetTracker] = {}
        self._committed: dict[int, int] = {}
        self.was_assigned = False
        static_id = f"{options.ranker_id}.{route}" if options.static_member and route == "baseline" else None
        self._consumer = Consumer(
            consumer_config(
                client_config(f"{options.ranker_id}.{route}"),
                options.namespace.group(f"ranker.{route}"),
                **quick_failover(static_id=static_id),
            )
        )
        self.held = HeldPartitions(self._consumer)

    @property
    def num_open(self) -> int:
        """Work taken and not yet answered and acknowledged."""
        return sum(tracker.num_open for tracker in self._trackers.values())

    def num_partitions(self, topic: str) -> int:
        """Partitions of a topic. Raises BrokerError where broker or topic is not there."""
        return num_partitions(self._consumer, topic, timeout_s=METADATA_TIMEOUT_S)

    def subscribe(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def take(self, wait_s: float) -> list[Message]:
        """Wait for the first record, then take what is there, a batch at most. Raises BrokerError on a fatal error."""
        self.held.release_known()
        first = self._consumer.poll(wait_s) if wait_s else None
        if first is None:
            # After a wait the queue is known to be empty.
            messages = [] if wait_s else self._consumer.consume(MAX_BATCH, 0)
        else:
            assignment = self._trackers
            messages = self._consumer.consume(MAX_BATCH - 1, 0)
            # Taken under an assignment that has ended meanwhile, it is not ours to finish: it will be read again.
            if assignment is self._trackers:
                messages.insert(0, first)
        return [message for message in messages if self._is_record(message) and self.held.is_ready(message)]

    def begin(self, message: Message) -> OffsetTracker:
        """Note a record taken in; the tracker learns when it is finished."""
        # One that belongs to no partition of ours is answered, but leads to no commit.
        tracker = self._trackers.get(message.partition() or 0) or OffsetTracker()
        tracker.begin(message.offset() or 0)
        return tracker

    def commit(self, *, wait: bool = False) -> None:
        """Commit each partition up to its first unfinished record; a failure only means more to read again."""
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
        """1. answers sent are acknowledged  2. their offsets are committed  3. the partitions are let go."""
        self._settle()  # 1
        self.commit(wait=True)  # 2
        self._trackers = {}  # 3

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Another member has them: nothing may be committed."""
        self._trackers = {}


class _Worker:
    """The loop and its shutdown."""

    def __init__(
        self,
        options: RankerOptions,
        *,
        warm: WarmScorer,
        costs: CostBook,
        gate: GateReader | None,
    ) -> None:
        self._options = options
        self._gate = gate
        self._is_stopping = False
        self._clock = BrokerClock()
        self._permit = Permit(gate)
        self._decoder = Decoder([RankingWork])
        self._producer = DurableProducer(producer_config(client_config(options.ranker_id), **PATIENT_SEND))
        self._answers_topic = options.namespace.topic(RANKING_ANSWERS)
        self._latency_topic = options.namespace.topic(SERVING_LATENCY)
        # Base first: it is polled first, and it is where a mixed replica waits.
        self._consumers = [
            _RouteConsumer(options, route, clock=self._clock, settle=self._settle) for route in sorted(options.routes)
        ]
        for consumer in self._consumers:
            consumer.num_partitions(consumer.topic)
        self._limits = IntakeLimits(
            num_reply_partitions=self._consumers[0].num_partitions(self._answers_topic),
            margin_ms=options.margin_ms,
        )
        self._trace = CallTrace(options.trace_path) if options.trace_path is not None else None
        learn_broker_time(self._clock, self._producer, options.namespace, writer=options.ranker_id)
        # By the broker's clock: a later start has a later epoch, whatever somebody does to this machine's clock.
        epoch_ms = int(self._clock.broker_ms(local_ms()))
        self._replica = Replica(
            ReplicaEnds[EncodedUsers](
                scorer=warm.scorer,
                permit=self._permit,
                clock_ns=time.monotonic_ns,
                send=self._send_answer,
                peek=self._peek,
                on_call=self._trace.note if self._trace is not None else lambda _: None,
            ),
            costs=costs,
            settings=ReplicaSettings(
                identity=Identity(ranker_id=options.ranker_id, epoch_ms=epoch_ms),
                cell=options.cell,
                routes=options.routes,
                plan=options.plan,
                num_features=warm.num_features,
            ),
        )
        self._metrics = Metrics(METRICS)
        self._num_dead_letters = 0
        self._num_sent = 0
        self._last_pass_s = time.monotonic()
        self._next_commit_s = 0.0
        self._next_interval_s = 0.0
        self._cpu_s = time.process_time()
        self._cpu_since_s = time.monotonic()

    def ask_to_stop(self) -> None:
        """From a signal: optional work ends before its next chunk, the loop after its batch."""
        self._replica.drain()
        self._is_stopping = True

    def serve(self) -> None:
        """Loop until asked to stop, then shut down in order."""
        with HealthServer(
            self._metrics,
            live={"loop": self._stalled},
            ready={"partitions": self._unassigned, "gate": self._gate_problem, "schemas": self._schema_problem},
            port=self._options.health_port,
        ) as health:
            _log.info("serving", routes=",".join(self._options.routes), health=health.url)
            for consumer in self._consumers:
                consumer.subscribe()
            while not self._is_stopping:
                self._pass()
            self._shut_down()

    def _pass(self) -> None:
        may_run = self._replica.idle()
        tasks = self._take(may_run)  # 1, 2
        if tasks:
            self._replica.run(tasks)  # 3
            if self._trace is not None:
                self._trace.flush()
        self._producer.poll()  # 4
        now_s = self._last_pass_s = time.monotonic()
        if now_s >= self._next_commit_s:
            self._next_commit_s = now_s + COMMIT_EVERY_S
            for consumer in self._consumers:
                consumer.commit()
            if self._gate is not None:
                self._gate.heartbeat()
                self._metrics.gauge("intertidal_gate_open").labels(self._options.pool).set(may_run)
        if now_s >= self._next_interval_s:
            self._send_intervals()

    def _take(self, may_run: bool) -> list[Task]:
        first, *others = self._consumers
        if others:
            wait_s = MIXED_WAIT_S
        elif self._gate is None:
            wait_s = IDLE_WAIT_S
        else:
            wait_s = OPEN_WAIT_S if may_run else CLOSED_WAIT_S
        tasks = self._decode(first, first.take(wait_s))
        for consumer in others:
            tasks += self._decode(consumer, consumer.take(0.0))
        return tasks

    def _peek(self) -> Sequence[Task]:
        """Base work that has arrived meanwhile."""
        first = self._consumers[0]
        return self._decode(first, first.take(0.0)) if first.route == "baseline" else ()

    def _decode(self, consumer: _RouteConsumer, messages: Sequence[Message]) -> list[Task]:
        if not messages:
            return []
        receipt_ms = local_ms()
        now_ns = time.monotonic_ns()
        append_times_ms = [message.timestamp()[1] for message in messages]
        for append_ms in append_times_ms:
            self._clock.observe(receipt_ms=receipt_ms, append_ms=append_ms)
        moment = Moment(now_ns=now_ns, broker_ms=self._clock.broker_ms(receipt_ms))
        tasks: list[Task] = []
        for message, append_ms in zip(messages, append_times_ms, strict=True):
            tracker = consumer.begin(message)
            try:
                work = self._decoder.decode(message.value())
                assert isinstance(work, RankingWork)
                tasks.append(
                    task_of(
                        work,
                        route=consumer.route,
                        partition=message.partition() or 0,
                        append_ms=append_ms,
                        moment=moment,
                        limits=self._limits,
                        origin=_Origin(tracker, message.offset() or 0, _answer_headers(message)),
                    )
                )
            except RecordError as error:
                self._refuse(consumer, message, error, tracker)
        self._metrics.counter("intertidal_records_read_total").labels(consumer.topic).inc(len(messages))
        return tasks

    def _refuse(self, consumer: _RouteConsumer, message: Message, error: RecordError, tracker: OffsetTracker) -> None:
        """Dead-letter a record; it is finished once the letter is durable."""
        letter = dead_letter(message, error, part="ranker", stage="intake")
        offset = message.offset() or 0
        self._producer.send(
            consumer.dead_letters,
            letter,
            key=dead_letter_key(letter),
            on_delivered=lambda _: tracker.finish(offset),
        )
        self._num_dead_letters += 1
        self._metrics.counter("intertidal_dead_letters_total").labels(consumer.topic, error.reason).inc()
        _log.warning("record refused", topic=consumer.topic, offset=offset, reason=error.reason, detail=error.detail)

    def _send_answer(self, task: Task, answer: RankingAnswer) -> None:
        origin = task.origin
        assert isinstance(origin, _Origin)
        self._producer.send(
            self._answers_topic,
            answer,
            partition=task.work.reply_partition,
            headers=origin.headers,
            on_delivered=lambda _: origin.tracker.finish(origin.offset),
        )
        self._num_sent += 1

    def _send_intervals(self) -> None:
        now_s, cpu_s = time.monotonic(), time.process_time()
        cpu_share = (cpu_s - self._cpu_s) / max(1e-3, now_s - self._cpu_since_s)
        self._cpu_s, self._cpu_since_s = cpu_s, now_s
        self._next_interval_s = now_s + self._options.time.interval_ms / 1e3
        intervals = self._replica.close_interval(
            int(self._clock.broker_ms(local_ms())),
            num_waiting=sum(consumer.num_open for consumer in self._consumers),
            cpu_share=cpu_share,
        )
        for interval in intervals:
            self._send_interval(interval)
        self._metrics.counter("intertidal_records_sent_total").labels(self._answers_topic).inc(self._num_sent)
        self._num_sent = 0

    def _send_interval(self, interval: LatencyInterval) -> None:
        self._producer.send(
            self._latency_topic,
            interval,
            key=interval.cell.encode(),
            on_delivered=lambda message: observe(self._clock, message),
        )

    def _settle(self) -> None:
        """Wait until what was sent is acknowledged, within what a rebalance allows."""
        deadline_s = time.monotonic() + REVOKE_TIMEOUT_S
        while self._producer.num_pending and time.monotonic() < deadline_s:
            self._producer.poll(0.01)

    def _shut_down(self) -> None:
        """Within the notice: the batch at hand has ended, its optional chunks shed since the signal.

        1. the gate's slot is given back: no optional work is running, and none will
        2. the last interval record is sent
        3. all that was sent is acknowledged
        4. offsets are committed
        5. the groups are left
        """
        if self._gate is not None:
            self._replica.idle()
            self._gate.acknowledge(
                self._gate.generation,
                last_chunk_end_ns=self._permit.last_chunk_end_ns,
                drained_ns=time.monotonic_ns(),
            )
            self._gate.close()  # 1
        self._send_intervals()  # 2
        self._producer.drain(self._options.notice_s)  # 3
        for consumer in self._consumers:
            consumer.commit(wait=True)  # 4
        for consumer in self._consumers:
            consumer.close()  # 5
        if self._trace is not None:
            self._trace.close()
        _log.info("stopped", dead_letters=self._num_dead_letters)

    def _stalled(self) -> str | None:
        idle_s = time.monotonic() - self._last_pass_s
        return f"the loop has not turned for {idle_s:.0f} s" if idle_s > STALL_S else None

    def _unassigned(self) -> str | None:
        waiting = [consumer.topic for consumer in self._consumers if not consumer.was_assigned]
        return f"no assignment yet for {', '.join(waiting)}" if waiting else None

    def _schema_problem(self) -> str | None:
        troubles = (consumer.held.trouble() for consumer in self._consumers)
        return next((trouble for trouble in troubles if trouble is not None), None)

    def _gate_problem(self) -> str | None:
        return self._gate.problem if self._gate is not None else None


def _answer_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Trace context of an answer: that of its work, with a span of its own."""
    if not message.headers():
        return ()
    trace = trace_from(message_headers(message))
    return () if trace is None else (trace.child().header(),)
