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

import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ops.telemetry.logs import get_log
from ops.telemetry.stop_signals import on_stop_signals
from ranking.client.broker_time import learn_broker_time, local_ms, observe
from ranking.client.cells import CellsView
from ranking.client.takeover import read_estates
from ranking.client.targets import TargetsView
from ranking.clock import BrokerClock
from ranking.router.commits import commit_now, place_of
from ranking.router.core import RouterCore
from ranking.router.events import Action, Commit, Intake, PublishInterval, PublishResult, RefuseRequest, SendWork
from ranking.router.instruments import Instruments
from ranking.router.options import RouterOptions
from ranking.router.progress import PartitionProgress
from ranking.router.stall import StallGuard
from schemas.dead_letters import dead_letter_key
from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import Decoder, frame
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import (
    HEARTBEAT_MS,
    PATIENT_SEND,
    SESSION_MS,
    client_config,
    consumer_config,
    producer_config,
    quick_failover,
)
from schemas.kafka.dead_letters import dead_letter, message_headers
from schemas.kafka.fatal import ends_reading
from schemas.kafka.held import HeldPartitions
from schemas.kafka.metadata import num_partitions
from schemas.kafka.offsets import OffsetTracker
from schemas.kafka.producer import DurableProducer
from schemas.kafka.ranges import MAX_BATCH
from schemas.kafka.registry import connect_registry
from schemas.records import RankingAnswer, RankingRequest
from schemas.topics import (
    CONTROL_TARGETS,
    RANKING_ANSWERS,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    SERVING_LATENCY,
    WORK_BY_ROUTE,
    Topic,
)
from schemas.tracing import child_headers, trace_from

_log = get_log(__name__)

MAX_WAIT_S = 0.1
# Answers with a schema that is not known yet: soon too late for anyone, so that the oldest may go.
MAX_UNREAD_ANSWERS = 256
BROKER_TIMEOUT_S = 10.0
# Longer than any deadline in use; a supervisor kills only after that.
STOP_LIMIT_S = 3.0

__all__ = ["RouterOptions", "RouterWorker", "run"]


def run(options: RouterOptions) -> None:
    """Route until SIGTERM or SIGINT. Raises ValueError, BrokerError or DeliveryError."""
    connect_registry()
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
        self._work = {route: options.namespace.topic(topic) for route, topic in WORK_BY_ROUTE.items()}
        self._decode_request = Decoder((RankingRequest,)).decode
        self._decode_answer = Decoder((RankingAnswer,)).decode
        self._clock = BrokerClock()
        self._last_now_ms = 0.0
        self._consumer = Consumer(
            consumer_config(
                base,
                options.namespace.group("router"),
                **quick_failover(static_id=options.router_id),
                error_cb=self._on_client_error,
            )
        )
        self._producer = DurableProducer(producer_config(base, **PATIENT_SEND))
        # What is done in the name of an owner, and must not be done by one that is none any more.
        self._owners_topics = frozenset(
            {self._results, options.namespace.dead_letters(RANKING_REQUESTS), *self._work.values()}
        )
        self._guard = StallGuard(session_ms=SESSION_MS, heartbeat_ms=HEARTBEAT_MS)
        self._cells = CellsView(options.namespace, client_id=f"{options.router_id}-cells")
        self._targets = TargetsView(options.namespace, client_id=f"{options.router_id}-targets")
        self._policy = replace(options.policy, skew_ms=options.time.skew_ms, interval_ms=options.time.interval_ms)
        self._core = RouterCore(
            self._policy,
            router=options.router_id,
            num_partitions={route: num_partitions(self._consumer, topic) for route, topic in self._work.items()},
            num_request_partitions=num_partitions(self._consumer, self._requests),
            targets=self._targets.table,
            cells=self._cells.table,
            seed=secrets.randbits(63),
        )
        self._instruments = Instruments()
        self._num_duplicates = 0
        # Rises with each change of the assignment: what was asked before it is told from what was asked after.
        self._generation = 0
        self._next_offsets: dict[int, int] = {}
        # Requests whose schema is not known yet hold their partition; answers wait aside, as others behind them do not.
        self._held = HeldPartitions(self._consumer)
        self._unread_answers: deque[Message] = deque(maxlen=MAX_UNREAD_ANSWERS)
        self._answers_from: dict[int, int] = {}
        self._is_paused = False
        self._is_stopping = False
        self._health = self._instruments.server(
            port=options.health_port,
            now_ms=lambda: self._clock.broker_ms(local_ms()),
            ready={
                "partitions": lambda: None if self._core.partitions else "no partition of the requests is assigned",
                "targets": lambda: None if self._targets.is_alive else "targets are not followed",
                "schemas": self._held.trouble,
            },
        )

    def stop(self) -> None:
        """Begin the shutdown."""
        self._is_stopping = True

    def run(self) -> None:
        """Route until `stop`."""
        try:
            learn_broker_time(self._clock, self._producer, self._namespace, writer=self._router_id)
            self._cells.start()
            self._targets.start(on_shut_out=self._instruments.shut_out)
            self._targets.wait_until_caught_up(BROKER_TIMEOUT_S)
            self._health.start()
            self._subscribe()
            _log.info("router started", router=self._router_id, health=self._health.url)
            while not self._is_stopping:
                self._round()
            self._shut_down()
        finally:
            self._health.close()
            self._targets.close()
            self._cells.close()

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
        self._is_owner()
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
        if self._held.release_known():
            # What goes on is not paused, whatever the rest is: said again below.
            self._is_paused = False
        for _ in range(len(self._unread_answers)):
            self._handle_answer(self._unread_answers.popleft())
        self._refuse_targets()
        self._pause(self._core.is_full or self._is_stopping)
        self._instruments.round(now_ms)

    def _handle(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                if ends_reading(error):
                    raise BrokerError(f"{self._requests}: {error.str()}")
                _log.warning("consumer", why=error.str())
                continue
            self._heard(message)
            if message.topic() == self._answers:
                self._instruments.read(RANKING_ANSWERS.name)
                self._handle_answer(message)
            else:
                self._handle_request(message, message.timestamp()[1])

    def _heard(self, message: Message) -> None:
        """Something has come from the broker: a record, or the acknowledgement of one."""
        observe(self._clock, message)
        self._core.broker_heard(self._now_ms())

    def _on_client_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._core.broker_away()

    def _handle_request(self, message: Message, append_ms: int) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if offset < self._next_offsets.get(partition, offset + 1) or not self._held.is_ready(message):
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
        try:
            answer = self._decode_answer(message.value())
        except RecordError as error:
            self._dead_letter(message, error, RANKING_ANSWERS)
            return
        except SchemaPendingError:
            self._unread_answers.append(message)
            return
        assert isinstance(answer, RankingAnswer)
        self._perform(self._core.answer(answer, self._now_ms()))

    def _perform(self, actions: Sequence[Action], message: Message | None = None) -> None:
        """Carry actions out; ``message`` is the request that they come from."""
        for action in actions:
            if not self._may(action):
                continue
            match action:
                case SendWork():
                    self._producer.send(
                        self._work[action.route],
                        action.work,
                        partition=action.partition,
                        headers=child_headers(action.trace),
                    )
                case PublishResult():
                    self._publish(action)
                case RefuseRequest():
                    assert message is not None, "a request is refused when it is read"
                    self._dead_letter(
                        message, action.error, RANKING_REQUESTS, finishes=(action.partition, action.offset)
                    )
                case Commit():
                    self._consumer.commit(offsets=[place_of(self._requests, action)], asynchronous=True)
                case PublishInterval():
                    interval = action.interval
                    self._instruments.interval(interval)
                    self._producer.send(self._latency, interval, key=interval.cell.encode(), on_delivered=self._heard)

    def _may(self, action: Action) -> bool:
        """Whether an action is still ours to carry out: its partition may have gone since it was decided."""
        match action:
            case PublishInterval():
                return True
            case SendWork():
                number = action.work.reply_partition
            case _:
                number = action.partition
        return self._is_owner() and number in self._core.partitions

    def _publish(self, action: PublishResult) -> None:
        generation = self._generation

        def acknowledged(message: Message) -> None:
            self._heard(message)
            if generation == self._generation:
                self._core.published(action.partition, action.offset, self._now_ms(), results_offset=message.offset())

        result = action.result
        self._instruments.result(result, is_reported=self._core.is_reported(result.cell, self._now_ms()))
        value, key, headers = frame(result), result.user_id.encode(), child_headers(action.trace)
        # The last look: nothing but the hand-over lies behind it.
        if self._may(action):
            self._producer.send(
                self._results, value, key=key, partition=action.partition, headers=headers, on_delivered=acknowledged
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

    def _refuse_targets(self) -> None:
        """Dead-letter targets that nobody believes: every router meets them, the owner of partition 0 writes."""
        while self._targets.refused:
            message, error = self._targets.refused.popleft()
            if 0 in self._core.partitions:
                self._dead_letter(message, error, CONTROL_TARGETS)

    # Assignment

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._requests], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _is_owner(self) -> bool:
        """Whether what was taken in is still ours to answer; steps as in `ranking.router.stall`."""
        if not self._guard.is_in_doubt(local_ms()):
            return True
        # 1.
        is_owner = commit_now(self._consumer, self._requests, self._core.positions(self._now_ms()))
        self._guard.proved(local_ms())
        if is_owner:
            return True
        _log.warning("stood still past the session", partitions=len(self._core.partitions))
        # 2.
        self._let_go(sorted(self._core.partitions))
        # 4.
        self._consumer.unsubscribe()
        self._subscribe()
        return False

    def _let_go(self, numbers: Sequence[int]) -> None:
        """Own partitions no longer, without a word: a result from here could be the second one."""
        self._generation += 1
        for number in numbers:
            self._core.abandon(number, self._now_ms())
            self._forget(number)
        # 3.
        self._producer.drop_queued(self._owners_topics)

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self._generation += 1
        numbers = [entry.partition for entry in assigned]
        # Results of ours that are still on their way must be in the log before its end is read.
        self._producer.drain(BROKER_TIMEOUT_S)
        # 1. and 2.
        estates = read_estates(
            consumer,
            self._base_config,
            numbers,
            requests=self._requests,
            answers=self._answers,
            results=self._results,
            timeout_s=BROKER_TIMEOUT_S,
        )
        # 3.
        for number, estate in estates.items():
            self._next_offsets[number] = estate.takeover.start
            self._answers_from[number] = estate.answers_end
            progress = PartitionProgress(
                OffsetTracker(),
                estate.takeover,
                duplicate_horizon_ms=self._policy.duplicate_horizon_ms,
                max_remembered_results=self._policy.max_remembered_results,
            )
            self._core.assign(number, progress, answered=estate.answered)
        # 4.
        commit_now(
            self._consumer,
            self._requests,
            [place for place in self._core.positions(self._now_ms()) if estates[place.partition].is_new],
        )
        # 5.
        self._rewind()
        _log.info("partitions assigned", partitions=numbers, answered=sum(len(e.answered) for e in estates.values()))

    def _on_revoke(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self._give_up([entry.partition for entry in revoked])
        # 4.
        consumer.unassign()

    def _on_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._let_go([entry.partition for entry in lost])
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
        commit_now(
            self._consumer,
            self._requests,
            [commit for number in owned for commit in self._core.release(number, self._now_ms())],
        )
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
        # Being paused outlives an assignment, and a partition's absence too: one that comes back is paused still.
        self._consumer.resume([TopicPartition(self._requests, number) for number in self._next_offsets])
        self._is_paused = False
        self._held.release_all()

    def _pause(self, is_wanted: bool) -> None:
        """Leave requests in the log, or take them in again; answers always come in."""
        if is_wanted == self._is_paused or not self._next_offsets:
            return
        numbers = [number for number in self._next_offsets if not self._held.holds(self._requests, number)]
        places = [TopicPartition(self._requests, number) for number in numbers]
        (self._consumer.pause if is_wanted else self._consumer.resume)(places)
        self._is_paused = is_wanted

    def _now_ms(self) -> float:
        """The broker's time; it never goes back, though its estimate may."""
        self._last_now_ms = max(self._last_now_ms, self._clock.broker_ms(local_ms()))
        return self._last_now_ms
