"""What counts as delivered, and what can be taken back, against a client that does as it is told."""

from collections import deque
from typing import Any

import pytest
from confluent_kafka import KafkaError

import schemas.kafka.producer as producer_module
from schemas.kafka.producer import DeliveryError, DurableProducer


class Report:
    """A delivery report's message."""

    def __init__(self, topic, partition, offset):
        self._place = (topic, partition, offset)

    def topic(self):
        return self._place[0]

    def partition(self):
        return self._place[1]

    def offset(self):
        return self._place[2]


class FakeClient:
    """Takes records; the test says what becomes of each, in any order."""

    def __init__(self, config):
        self.queued: deque[Any] = deque()
        self.reports: deque[Any] = deque()
        self.produced = []

    def produce(self, topic, value, *, key, partition, headers, on_delivery):
        self.produced.append((topic, value))
        self.queued.append((topic, partition, on_delivery))

    def poll(self, timeout_s):
        while self.reports:
            report, error, message = self.reports.popleft()
            report(error, message)

    def purge(self, *, in_queue, in_flight, blocking):
        assert (in_queue, in_flight, blocking) == (True, False, True)
        while self.queued:
            self.end(error=KafkaError._PURGE_QUEUE)

    def end(self, *, offset=None, error=None):
        topic, partition, report = self.queued.popleft()
        self.reports.append((report, None if error is None else KafkaError(error), Report(topic, partition, offset)))


class Bench:
    """A producer on a fake client and a fake clock."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(producer_module, "Producer", FakeClient)
        self.now_s = 100.0
        self.producer = DurableProducer({}, clock_s=lambda: self.now_s)
        self.client: Any = self.producer._producer
        self.delivered = []

    def send(self, value=b"x", *, topic="t", partition=0):
        self.now_s += 1.0
        self.producer.send(topic, value, partition=partition, on_delivered=lambda m: self.delivered.append(m.offset()))

    def end(self, **how):
        self.now_s += 1.0
        self.client.end(**how)
        self.producer.poll()


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


def test_a_duplicate_in_a_partition_that_has_acknowledged_before_is_a_success(bench):
    bench.send()
    bench.end(offset=7)
    bench.send()
    bench.end(offset=None)
    assert bench.delivered == [7, None]
    assert bench.producer.num_pending == 0


def test_a_duplicate_as_the_first_word_of_a_partition_is_a_loss(bench):
    bench.send(partition=1)
    bench.end(offset=7)
    bench.send(partition=0)
    with pytest.raises(DeliveryError, match=r"t\[0\]: acknowledged without an offset"):
        bench.end(offset=None)
    assert bench.delivered == [7]


def test_a_batch_that_overtook_the_first_one_proves_nothing_for_it(bench):
    """The loss on a new topic: the second is taken as the first, then the retry of the first is "a duplicate"."""
    bench.send(b"first")
    bench.send(b"second")
    bench.client.queued.rotate(-1)
    bench.end(offset=0)
    with pytest.raises(DeliveryError, match="without an offset"):
        bench.end(offset=None)


def test_after_a_silence_in_which_the_broker_forgets_a_producer_it_is_new_again(bench):
    bench.send()
    bench.end(offset=7)
    bench.now_s += 4_000.0
    bench.send()
    with pytest.raises(DeliveryError, match="without an offset"):
        bench.end(offset=None)


def test_what_has_not_left_can_be_dropped_and_the_rest_goes_on_in_order(bench):
    for topic, value in [("results", b"1"), ("latency", b"2"), ("work", b"3"), ("latency", b"4")]:
        bench.send(value, topic=topic)
    bench.producer.drop_queued({"results", "work"})
    assert bench.producer.num_pending == 2
    assert bench.client.produced[4:] == [("latency", b"2"), ("latency", b"4")]
    bench.end(offset=1)
    bench.end(offset=2)
    bench.producer.drain()
    assert bench.delivered == [1, 2]


def test_a_late_purge_takes_nothing_that_was_sent_after_it_was_asked_for(bench):
    bench.producer.drop_queued({"results"})
    bench.send(b"new", topic="results")
    bench.end(error=KafkaError._PURGE_QUEUE)
    assert bench.producer.num_pending == 1
    bench.end(offset=1)
    assert bench.delivered == [1]


def test_a_refused_record_fails_the_next_call(bench):
    bench.send()
    with pytest.raises(DeliveryError, match=r"t\[0\]"):
        bench.end(error=KafkaError._MSG_TIMED_OUT)
    with pytest.raises(DeliveryError):
        bench.send()
