"""The router's edge to Kafka: one loop, one consumer, one producer around `RouterCore`.

One consumer reads the requests (by group) and the answers (the same partition numbers, added by hand to what the
group assigns), so a record of either wakes the loop at once and no thread waits for another.

Take-over of partitions, in the callback of the assignment:
1. Read the committed offsets with their metadata, and both ends of requests, answers and results.
2. Read the results from the floor in the metadata to their end: these requests have their result.
3. Begin there: the end of the requests is the horizon; what stands in front of it was left by another owner.
4. Where nothing was committed, commit the starting offset, so that no later start can skip a record.
5. Read requests from the committed offset and answers from their end. Nothing in front of that end is needed: what
   the last owner asked for is asked again, and base work gives the same answer to whoever asks.

Giving partitions up, in the callback of the revocation:
1. Publish what has its base answer; leave the rest to the next owner.
2. Wait until the broker has acknowledged everything.
3. Commit. 4. Let go.

Shutdown on SIGTERM or SIGINT:
1. Take no more requests.
2. Finish those in flight, up to their answer-by times.
3. to 6. Give the partitions up as above, and report the last interval.
7. Leave the group (a static member keeps its place for the session's time) and close.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ops.telemetry.logs import get_log
from ops.telemetry.stop_signals import on_stop_signals
from ranking.client.targets import TargetsView
from ranking.clock import BrokerClock
from ranking.router.core import RouterCore
from ranking.router.events import Action, Commit, Intake, PublishInterval, PublishResult, RefuseRequest, SendWork
from ranking.router.instruments import Instruments
from ranking.router.policy import RouterPolicy
from ranking.router.progress import PartitionProgress, commit_metadata, results_floor
from schemas.dead_letters import dead_letter_key
from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import client_config, consumer_config, producer_config, quick_failover
from schemas.kafka.dead_letters import dead_letter, message_headers
from schemas.kafka.metadata import num_partitions
from schemas.kafka.offsets import OffsetTracker
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import MAX_BATCH, read_ranges, watermarks
from schemas.records import ClockRecord, RankingAnswer, RankingRequest, RankingResult
from schemas.records.fields import Route
from schemas.settings import TimeSettings
from schemas.topics import (
    RANKING_ANSWERS,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    SERVING_LATENCY,
    WORK_BY_ROUTE,
    Namespace,
    Topic,
)
from schemas.tracing import TraceContext, trace_from

_log = get_log(__name__)

ROUTES: tuple[Route, ...] = ("baseline", "wide")
MAX_WAIT_S = 0.1
# A consumer that met one of these reads nothing any more, though not each is flagged as fatal.
_FATAL = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
BROKER_TIMEOUT_S = 10.0
# Longer than any deadline in use; a supervisor kills only after that.
STOP_LIMIT_S = 3.0


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """One router. ``router_id`` names it in records and in the group, where it is a static member.

    The skew and the interval of ``time`` replace those of ``policy``.
    """

    namespace: Namespace
    time: TimeSettings
    router_id: str
    health_port: int = 0
    policy: RouterPolicy = field(default_factory=RouterPolicy)


def run(options: RouterOptions) -> None:
    """Route until SIGTERM or SIGINT. Raises ValueError, BrokerError or DeliveryError."""
    worker = RouterWorker(options)
    with on_stop_signals(worker.stop):
        worker.run()


class RouterWorker:
    """The loop. `stop` may be called from a signal handler."""

    def __init__(self, options: RouterOptions) -> None:
        base = client_config(options.router_id)
        self._base_config = base
        self._namespace = options.namespace
        self._router_id = options.router_id
        self._requests = options.namespace.topic(RANKING_REQUESTS)
        self._answers = options.namespace.topic(RANKING_ANSWERS)
        self._results = options.namespace.topic(RANKING_RESULTS)
        self._latency = options.namespace.topic(SERVING_LATENCY)
        self._work = {route: options.namespace.topic(WORK_BY_ROUTE[route]) for route in ROUTES}
        self._decode_request = Decoder((RankingRequest,)).decode
        self._decode_answer = Decoder((RankingAnswer,)).decode
        self._clock = BrokerClock()
        self._last_now_ms = 0.0
        self._consumer = Consumer(
            consumer_config(base, options.namespace.group("router"), **quick_failover(static_id=options.router_id))
        )
        self._producer = DurableProducer(producer_config(base))
        self._targets = TargetsView(options.namespace, client_id=f"{options.router_id}-targets")
        self._core = RouterCore(
            replace(options.policy, skew_ms=options.time.skew_ms, interval_ms=options.time.interval_ms),
            router=options.router_id,
            num_partitions={route: num_partitions(self._consumer, topic) for route, topic in self._work.items()},
            num_request_partitions=num_partitions(self._consumer, self._requests),
            targets=self._targets.table,
            seed=time.time_ns(),
        )
        self._instruments = Instruments()
        self._num_duplicates = 0
        # Rises with each change of the assignment: what was asked before it is told from what was asked after.
        self._generation = 0
        self._next_offsets: dict[int, int] = {}
        self._answers_from: dict[int, int] = {}
        self._is_paused = False
        self._is_stopping = False
        self._health = self._instruments.server(
            port=options.health_port,
            now_ms=lambda: self._clock.broker_ms(_local_ms()),
            ready={
                "partitions": lambda: None if self._core.partitions else "no partition of the requests is assigned",
                "targets": lambda: None if self._targets.is_alive else "targets are not followed",
            },
        )

    def stop(self) -> None:
        """Begin the shutdown."""
        self._is_stopping = True

    def run(self) -> None:
        """Route until `stop`."""
        try:
            self._set_clock()
            self._targets.start()
            self._targets.wait_until_caught_up(BROKER_TIMEOUT_S)
            self._health.start()
            self._consumer.subscribe(
                [self._requests], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            _log.info("router started", router=self._router_id, health=self._health.url)
            while not self._is_stopping:
                self._round()
            self._shut_down()
        finally:
            self._health.close()
            self._targets.close()

    def _shut_down(self) -> None:
        # 1.
        self._pause(True)
        # 2.
        give_up = time.monotonic() + STOP_LIMIT_S
        while self._core.num_waiting and time.monotonic() < give_up:
            self._round()
        # 3. to 6.
        left = sorted(self._core.partitions)
        num_left = self._core.num_waiting
        self._give_up(left)
        self._perform(self._core.intervals(self._now_ms()))
        self._producer.drain(BROKER_TIMEOUT_S)
        # 7.
        self._consumer.close()
        _log.info("router stopped", router=self._router_id, partitions=len(left), left_to_next=num_left)

    # The loop

    def _round(self) -> None:
        now_ms = self._now_ms()
        wait_s = min(MAX_WAIT_S, max(0.0, (self._core.next_due_ms - now_ms) / 1000.0))
        # Whole milliseconds, rounded up: librdkafka cuts fractions off, and the loop would spin through the last one.
        first = self._consumer.poll(-(-wait_s * 1000 // 1) / 1000)
        if first is not None:
            # Handled before the next call: a callback inside it may change the assignment.
            self._handle([first])
            generation = self._generation
            more = self._consumer.consume(MAX_BATCH - 1, 0)
            if generation == self._generation:
                self._handle(more)
            else:
                self._rewind()
        now_ms = self._now_ms()
        if now_ms >= self._core.next_due_ms:
            self._perform(self._core.tick(now_ms))
        self._producer.poll(0)
        self._pause(self._core.is_full or self._is_stopping)
        self._instruments.round(now_ms)

    def _handle(self, messages: Sequence[Message]) -> None:
        receipt_ms = _local_ms()
        for message in messages:
            error = message.error()
            if error is not None:
                if error.fatal() or error.code() in _FATAL:
                    raise BrokerError(f"{self._requests}: {error.str()}")
                _log.warning("consumer", why=error.str())
                continue
            _, append_ms = message.timestamp()
            self._clock.observe(receipt_ms=receipt_ms, append_ms=append_ms)
            if message.topic() == self._answers:
                self._handle_answer(message)
            else:
                self._handle_request(message, append_ms)

    def _handle_request(self, message: Message, append_ms: int) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if offset < self._next_offsets.get(partition, offset + 1):
            return
        self._next_offsets[partition] = offset + 1
        self._instruments.read(RANKING_REQUESTS.name)
        record: RankingRequest | RecordError
        try:
            decoded = self._decode_request(message.value())
            assert isinstance(decoded, RankingRequest)
            record = decoded
        except RecordError as error:
            record = error
        intake = Intake(
            partition=partition,
            offset=offset,
            key=message.key(),
            append_ms=append_ms,
            record=record,
            trace=trace_from(message_headers(message)),
        )
        self._perform(self._core.request(intake, self._now_ms()), message)
        if self._core.num_duplicates != self._num_duplicates:
            self._instruments.duplicates(RANKING_REQUESTS.name, self._core.num_duplicates - self._num_duplicates)
            self._num_duplicates = self._core.num_duplicates

    def _handle_answer(self, message: Message) -> None:
        self._instruments.read(RANKING_ANSWERS.name)
        try:
            answer = self._decode_answer(message.value())
        except RecordError as error:
            self._dead_letter(message, error, RANKING_ANSWERS)
            return
        assert isinstance(answer, RankingAnswer)
        self._perform(self._core.answer(answer, self._now_ms()))

    def _perform(self, actions: Sequence[Action], message: Message | None = None) -> None:
        """Carry actions out; ``message`` is the request that they come from."""
        for action in actions:
            match action:
                case SendWork():
                    self._producer.send(
                        self._work[action.route], action.work, partition=action.partition, headers=_trace(action.trace)
                    )
                case PublishResult():
                    self._publish(action)
                case RefuseRequest():
                    assert message is not None, "a request is refused when it is read"
                    self._dead_letter(
                        message, action.error, RANKING_REQUESTS, finishes=(action.partition, action.offset)
                    )
                case Commit():
                    self._consumer.commit(offsets=[self._commit(action)], asynchronous=True)
                case PublishInterval():
                    self._instruments.interval(action.interval)
                    self._producer.send(self._latency, action.interval, key=action.interval.cell.encode())

    def _publish(self, action: PublishResult) -> None:
        generation = self._generation

        def acknowledged(message: Message) -> None:
            _, append_ms = message.timestamp()
            self._clock.observe(receipt_ms=_local_ms(), append_ms=append_ms)
            if generation == self._generation:
                self._core.published(action.partition, action.offset, self._now_ms(), results_offset=message.offset())

        self._instruments.result(action.result)
        self._producer.send(
            self._results,
            action.result,
            key=action.result.user_id.encode(),
            partition=action.partition,
            headers=_trace(action.trace),
            on_delivered=acknowledged,
        )

    def _dead_letter(
        self, message: Message, error: RecordError, topic: Topic, *, finishes: tuple[int, int] | None = None
    ) -> None:
        generation = self._generation

        def acknowledged(_: Message) -> None:
            if finishes is not None and generation == self._generation:
                self._core.published(*finishes, self._now_ms())

        letter = dead_letter(message, error, part="router", stage="intake")
        self._instruments.dead_letter(topic.name, error.reason)
        self._producer.send(
            self._namespace.dead_letters(topic), letter, key=dead_letter_key(letter), on_delivered=acknowledged
        )

    # Assignment

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self._generation += 1
        numbers = [entry.partition for entry in assigned]
        # Results of ours that are still on their way must be in the log before its end is read.
        self._producer.drain(BROKER_TIMEOUT_S)
        # 1.
        committed = {place.partition: place for place in consumer.committed(assigned, timeout=BROKER_TIMEOUT_S)}
        requests = watermarks(consumer, self._requests, numbers)
        answers = watermarks(consumer, self._answers, numbers)
        results = watermarks(consumer, self._results, numbers)
        floors = {}
        for number in numbers:
            low, high = results[number]
            floor = results_floor(committed[number].metadata) if committed[number].offset >= 0 else None
            floors[number] = low if floor is None else min(max(floor, low), high)
        # 2.
        answered = self._answered({number: (floors[number], results[number][1]) for number in numbers})
        # 3.
        for number in numbers:
            low, high = requests[number]
            offset = committed[number].offset
            self._next_offsets[number] = offset if low <= offset <= high else low
            self._answers_from[number] = answers[number][1]
            progress = PartitionProgress(
                OffsetTracker(), floor=floors[number], horizon=high, results_end=results[number][1]
            )
            self._core.assign(number, progress, answered=answered[number])
        # 4.
        starts = [
            Commit(partition=number, offset=self._next_offsets[number], metadata=commit_metadata(floors[number]))
            for number in numbers
            if committed[number].offset < 0
        ]
        self._commit_now(starts)
        # 5.
        self._rewind()
        _log.info("partitions assigned", partitions=numbers, answered=sum(map(len, answered.values())))

    def _answered(self, ranges: dict[int, tuple[int, int]]) -> dict[int, set[str]]:
        """Ids of the requests that have a result within a range of each partition."""
        answered: dict[int, set[str]] = {number: set() for number in ranges}
        decode = Decoder((RankingResult,)).decode
        for message in read_ranges(self._base_config, self._results, ranges):
            try:
                result = decode(message.value())
            except RecordError as error:
                # Not ours: no request of ours can have it as its result.
                _log.warning("result unreadable", offset=message.offset(), why=str(error))
                continue
            assert isinstance(result, RankingResult)
            answered[message.partition() or 0].add(result.request_id)
        return answered

    def _on_revoke(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self._give_up([entry.partition for entry in revoked])
        # 4.
        consumer.unassign()

    def _on_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        # Another router owns them by now: a result from here could be the second one.
        self._generation += 1
        for number in [entry.partition for entry in lost]:
            self._core.abandon(number, self._now_ms())
            self._forget(number)
        consumer.unassign()
        _log.warning("partitions lost", partitions=len(lost))

    def _give_up(self, numbers: Sequence[int]) -> None:
        """Steps 1 to 3; partitions that are not owned (any more) are passed over."""
        owned = [number for number in numbers if number in self._core.partitions]
        # 1.
        for number in owned:
            self._perform(self._core.surrender(number, self._now_ms()))
        # 2.
        self._producer.drain(BROKER_TIMEOUT_S)
        # 3.
        self._commit_now([action for number in owned for action in self._core.release(number)])
        self._generation += 1
        for number in owned:
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._next_offsets.pop(number, None)
        self._answers_from.pop(number, None)

    def _rewind(self) -> None:
        """Read every owned partition from where the core stands."""
        self._consumer.assign(
            [TopicPartition(self._requests, number, offset) for number, offset in self._next_offsets.items()]
            + [TopicPartition(self._answers, number, offset) for number, offset in self._answers_from.items()]
        )
        # Being paused outlives an assignment.
        self._pause(False)

    def _pause(self, is_wanted: bool) -> None:
        """Leave requests in the log, or take them in again; answers always come in."""
        if is_wanted == self._is_paused or not self._next_offsets:
            return
        places = [TopicPartition(self._requests, number) for number in self._next_offsets]
        (self._consumer.pause if is_wanted else self._consumer.resume)(places)
        self._is_paused = is_wanted

    def _commit(self, commit: Commit) -> TopicPartition:
        return TopicPartition(self._requests, commit.partition, commit.offset, metadata=commit.metadata)

    def _commit_now(self, commits: Sequence[Action]) -> None:
        places = [self._commit(commit) for commit in commits if isinstance(commit, Commit)]
        if not places:
            return
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            # The next owner then begins further back and finds the results in the log.
            _log.warning("commit refused", why=error.args[0].str())

    # Time

    def _set_clock(self) -> None:
        """Learn the broker's time before the first request: one left in the log says nothing of it.

        A clock record says only that time has passed, so one more of them changes nothing for its readers.
        """

        def acknowledged(message: Message) -> None:
            _, append_ms = message.timestamp()
            self._clock.observe(receipt_ms=_local_ms(), append_ms=append_ms)

        for _ in range(2):
            # The second finds the connection open, and so is the closer one.
            self._producer.send(
                self._latency, ClockRecord(writer=self._router_id), partition=0, on_delivered=acknowledged
            )
            self._producer.drain(BROKER_TIMEOUT_S)

    def _now_ms(self) -> float:
        """The broker's time; it never goes back, though its estimate may."""
        self._last_now_ms = max(self._last_now_ms, self._clock.broker_ms(_local_ms()))
        return self._last_now_ms


def _local_ms() -> float:
    # Monotonic: what somebody does to this machine's clock moves no deadline. `BrokerClock` makes it the broker's.
    return time.monotonic() * 1000.0


def _trace(trace: TraceContext | None) -> list[tuple[str, bytes | None]]:
    return [] if trace is None else [trace.child().header()]
