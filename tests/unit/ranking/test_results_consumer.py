"""What a consumer of results asks of its Kafka client, with a client that only notes it."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition

from ranking.client.results import ResultsConsumer
from ranking.client.results import consumer as module
from schemas.kafka.admin import BrokerError
from schemas.topics import RANKING_RESULTS, Namespace

TOPIC = RANKING_RESULTS.name


class Client:
    """Stands for a Kafka client: rebalances happen inside ``poll``, as they do in it."""

    def __init__(self, _config: object) -> None:
        self.assigned: list[dict[int, int]] = []
        self.num_polls = 0
        self.rebalances: list[Callable[[], None]] = []

    def subscribe(self, _topics, *, on_assign, on_revoke, on_lost) -> None:
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost

    def give(self, *numbers: int) -> None:
        self.rebalances.append(lambda: self.on_assign(self, [TopicPartition(TOPIC, number) for number in numbers]))

    def take_back(self) -> None:
        self.rebalances.append(lambda: self.on_revoke(self, []))

    def poll(self, _timeout_s: float) -> None:
        self.num_polls += 1
        if self.rebalances:
            self.rebalances.pop(0)()

    def consume(self, _num: int, _timeout_s: float) -> list[object]:
        return []

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned.append({place.partition: place.offset for place in places})

    def unassign(self) -> None:
        self.assigned.append({})

    def resume(self, _places: object) -> None: ...

    def close(self) -> None: ...


class Message:
    """One record of the past, as far as it is looked at."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self) -> int:
        return self._partition

    def topic(self) -> str:
        return TOPIC

    def offset(self) -> int:
        return 1

    def timestamp(self) -> tuple[int, int]:
        return 2, 0

    def key(self) -> None: ...

    def headers(self) -> None: ...

    def value(self) -> bytes:
        return b"unreadable"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client({})
    monkeypatch.setattr(module, "Consumer", lambda _config: client)
    monkeypatch.setattr(module, "connect_registry", lambda _environ: None)
    monkeypatch.setattr(module, "num_partitions", lambda *_, **__: 2)
    monkeypatch.setattr(module, "watermarks", lambda _c, _t, numbers, **_: dict.fromkeys(numbers, (0, 99)))
    monkeypatch.setattr(module, "group_places", lambda _c, _t, spans, **_: dict.fromkeys(spans, 45))
    monkeypatch.setattr(module, "read_ranges", lambda *_: iter(()))
    return client


@pytest.fixture
def results(client: Client) -> Iterator[ResultsConsumer]:
    with ResultsConsumer(Namespace(), group="t", environ={"KAFKA_BOOTSTRAP": "127.0.0.1:1"}) as results:
        yield results


def test_nothing_is_fetched_before_it_is_known_where_to_begin(client: Client, results: ResultsConsumer) -> None:
    client.give(0, 1)
    results.next_batch(0.0)
    # A client that is given a partition without an offset begins where it thinks best.
    assert client.assigned == [{}]
    results.next_batch(0.0)
    assert client.assigned == [{}, {0: 45, 1: 45}]


def test_who_seeks_its_places_in_vain_stays_in_the_group(
    client: Client, results: ResultsConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> dict[int, int]:
        raise BrokerError("the broker is away")

    monkeypatch.setattr(module, "group_places", away)
    client.give(0, 1)
    results.next_batch(0.0)
    before = client.num_polls
    client.take_back()
    for _ in range(3):
        results.next_batch(0.001)
    # The first of them lost the partitions in there: the others had nothing to seek.
    assert client.num_polls == before + 3
    assert client.assigned == [{}, {}]


def test_a_rebalance_while_the_past_is_read_begins_anew(
    client: Client, results: ResultsConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STAY_EVERY_S", 0.0)
    reads = [[Message(0), Message(1)], [Message(1)]]
    monkeypatch.setattr(module, "read_ranges", lambda *_: iter(reads.pop(0)))
    client.give(0, 1)
    results.next_batch(0.0)
    client.take_back()
    client.give(1)
    for _ in range(4):
        results.next_batch(0.001)
    assert client.assigned == [{}, {}, {}, {1: 45}]
