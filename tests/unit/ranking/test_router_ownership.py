"""What a router does once it may have stood still past its session: nothing in the name of what it owned."""

from collections import deque
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import ranking.router.worker as worker_module
from ranking.clock import BrokerClock
from ranking.consumer.worker.route_consumer import RouteConsumer
from ranking.router.instruments import Instruments
from ranking.router.stall import StallGuard
from ranking.router.worker import RouterWorker
from schemas.errors import RecordError
from schemas.framing import decode_as, encode
from schemas.kafka.admin import BrokerError
from schemas.kafka.offsets import OffsetTracker
from schemas.records import RankingResult
from schemas.topics import Namespace
from tests.unit.ranking.router_driver import NUM_PARTITIONS, START_MS, Driver, request_of, target_of


class FakeConsumer:
    def __init__(self):
        self.is_refused = False
        self.commits = []
        self.calls = []

    def commit(self, *, offsets, asynchronous):
        self.commits.append((sorted(place.partition for place in offsets), asynchronous))
        if self.is_refused:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
        return [SimpleNamespace(error=None) for _ in offsets]

    def subscribe(self, topics, **_):
        self.calls.append("subscribe")

    def unsubscribe(self):
        self.calls.append("unsubscribe")


class FakeProducer:
    def __init__(self):
        self.sent = []
        self.dropped = []

    def send(self, topic, record, **_):
        if isinstance(record, bytes):
            record = decode_as(record, RankingResult)
        self.sent.append((topic, getattr(record, "request_id", "")))

    def drop_queued(self, topics):
        self.dropped.append(set(topics))


class Bench:
    """A worker with a real core, and a broker that says what it is told to say."""

    def __init__(self, monkeypatch):
        self.local_ms = 10_000.0
        monkeypatch.setattr(worker_module, "local_ms", lambda: self.local_ms)
        self.driver = Driver()
        self.driver.core.targets.update(target_of(350))
        self.consumer, self.producer = FakeConsumer(), FakeProducer()
        worker: Any = RouterWorker.__new__(RouterWorker)
        self.worker = worker
        worker._core, worker._consumer, worker._producer = self.driver.core, self.consumer, self.producer
        worker._guard = StallGuard(session_ms=2_000.0, heartbeat_ms=500.0)
        worker._clock = BrokerClock()
        worker._clock.observe(receipt_ms=10_000.0, append_ms=START_MS)
        worker._last_now_ms = 0.0
        worker._generation = 0
        worker._next_offsets = dict.fromkeys(range(NUM_PARTITIONS), 0)
        worker._answers_from = dict.fromkeys(range(NUM_PARTITIONS), 0)
        worker._requests, worker._results, worker._latency = "requests", "results", "latency"
        worker._work = {"baseline": "baseline", "wide": "wide"}
        worker._owners_topics = frozenset({"results", "baseline", "wide", "requests.dlq"})
        worker._namespace = Namespace()
        worker._instruments = Instruments()
        worker._is_owner()

    def result_to_publish(self):
        """A result that was decided, and not yet handed to the client."""
        base, wide = self.driver.request(request_of("r1"))
        before = len(self.driver.published)
        self.driver.answer(base)
        self.driver.answer(wide)
        return self.driver.published[before:]

    def sent_to(self, topic):
        return [name for sent_topic, name in self.producer.sent if sent_topic == topic]


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


def test_a_loop_that_comes_round_asks_nobody(bench):
    bench.worker._perform(bench.result_to_publish())
    assert bench.sent_to("results") == ["r1"]
    assert bench.consumer.commits == []


def test_nothing_of_before_is_sent_once_the_partitions_are_another_ones(bench):
    actions = [*bench.result_to_publish(), *bench.driver.request(request_of("r2", user_id="u2"))]
    bench.consumer.is_refused = True
    bench.local_ms += 4_000.0
    bench.worker._perform(actions)
    assert bench.producer.sent == []
    assert bench.producer.dropped == [{"results", "baseline", "wide", "requests.dlq"}]
    assert bench.driver.core.partitions == frozenset()
    assert bench.driver.core.num_waiting == 0
    assert bench.worker._next_offsets == {}
    assert bench.consumer.calls == ["unsubscribe", "subscribe"]
    # Asked once, not for each action.
    assert bench.consumer.commits == [([0, 1, 2, 3], False)]


def test_the_last_look_comes_after_the_record_is_made(bench, monkeypatch):
    """What lies between the look and the hand-over is the time in which a stop goes unseen."""

    def made_slowly(record):
        bench.local_ms += 4_000.0
        return encode(record)

    monkeypatch.setattr(worker_module, "frame", made_slowly)
    bench.consumer.is_refused = True
    bench.worker._perform(bench.result_to_publish())
    assert bench.producer.sent == []


def test_accounts_of_what_was_let_go_are_still_reported(bench):
    bench.driver.request(request_of("r1"))
    bench.consumer.is_refused = True
    bench.local_ms += 4_000.0
    assert not bench.worker._is_owner()
    bench.worker._perform(bench.driver.core.intervals(START_MS + 5_000))
    assert [topic for topic, _ in bench.producer.sent] == ["latency"]


def test_all_goes_on_where_the_broker_still_knows_the_member(bench):
    """Stopped for a while that the session has outlived: nothing is lost, nothing is done twice."""
    actions = bench.result_to_publish()
    bench.local_ms += 1_500.0
    bench.worker._perform(actions)
    assert bench.consumer.commits == [([0, 1, 2, 3], False)]
    assert bench.sent_to("results") == ["r1"]
    assert bench.producer.dropped == []
    assert bench.driver.core.partitions == frozenset(range(NUM_PARTITIONS))


def test_what_the_client_finds_lost_is_let_go_in_the_same_way(bench):
    bench.driver.request(request_of("r1"))
    consumer = SimpleNamespace(unassign=lambda: None)
    bench.worker._on_lost(consumer, [SimpleNamespace(partition=number) for number in range(NUM_PARTITIONS)])
    assert bench.driver.core.partitions == frozenset()
    assert bench.producer.dropped == [{"results", "baseline", "wide", "requests.dlq"}]


def an_error(code, *, is_fatal=False):
    return SimpleNamespace(error=lambda: KafkaError(code, "told by the broker", is_fatal))


@pytest.mark.parametrize(
    ("code", "is_fatal", "ends"),
    [
        (KafkaError.FENCED_INSTANCE_ID, False, True),
        (KafkaError.UNKNOWN_MEMBER_ID, True, True),
        (KafkaError._ALL_BROKERS_DOWN, False, False),
        (KafkaError.UNKNOWN_MEMBER_ID, False, False),
        (KafkaError.ILLEGAL_GENERATION, False, False),
    ],
)
def test_a_router_and_a_replica_end_where_they_can_read_no_more_and_nowhere_else(bench, code, is_fatal, ends):
    """A twin of its name has taken its place; a session that ended, or a broker that is away, is none of that."""
    replica: Any = RouteConsumer.__new__(RouteConsumer)
    replica.topic = "ranking.work.baseline"
    if ends:
        with pytest.raises(BrokerError, match="requests: told by the broker"):
            bench.worker._handle([an_error(code, is_fatal=is_fatal)])
        with pytest.raises(BrokerError, match=r"ranking\.work\.baseline: told by the broker"):
            replica._is_record(an_error(code, is_fatal=is_fatal))
    else:
        bench.worker._handle([an_error(code)])
        assert not replica._is_record(an_error(code))


def test_a_replica_whose_commit_comes_too_late_goes_on():
    """Another member has its partitions: the work is done again there, and gives the same answer."""
    replica: Any = RouteConsumer.__new__(RouteConsumer)
    replica.topic, replica._consumer, replica._committed = "work", FakeConsumer(), {}
    replica._finished, replica._forget = SimpleQueue(), lambda: 0
    replica._consumer.is_refused = True
    tracker = OffsetTracker()
    tracker.begin(4)
    tracker.finish(4)
    replica._trackers = {0: tracker}
    for wait in (False, True):
        replica.commit(wait=wait)
    assert replica._committed == {}
    assert len(replica._consumer.commits) == 2
    replica._on_lost(replica._consumer, [])
    replica.commit(wait=True)
    assert len(replica._consumer.commits) == 2


@pytest.mark.parametrize("owns_the_first", [True, False])
def test_a_target_that_nobody_believes_is_dead_lettered_by_one_router_of_all(bench, owns_the_first):
    """Every router reads every target; one of them owns the first partition of the requests."""
    letters = []
    worker = bench.worker
    worker._dead_letter = lambda message, error, topic: letters.append((message, error.field, topic.name))
    refusal = RecordError("invalid_field", "for ever", field="valid_until_ms")
    worker._targets = SimpleNamespace(refused=deque([("message", refusal)]))
    if not owns_the_first:
        bench.driver.core.abandon(0, START_MS)
    worker._refuse_targets()
    assert letters == ([("message", "valid_until_ms", "control.targets")] if owns_the_first else [])
    assert not worker._targets.refused
