"""What a route's reader commits, and what it does when its partitions go: nothing unfinished is ever passed over."""

from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

import ranking.consumer.worker.route_consumer as route_module
from ranking.consumer.worker.route_consumer import Origin, RouteConsumer
from schemas.kafka.offsets import OffsetTracker


class FakeConsumer:
    """Notes what is committed."""

    def __init__(self) -> None:
        self.commits: list[tuple[dict[int, int], bool]] = []

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        self.commits.append(({place.partition: place.offset for place in offsets}, not asynchronous))


def message(offset: int, partition: int = 0) -> Any:
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset)


class Bench:
    def __init__(self, num_forgotten: int = 0) -> None:
        route: Any = RouteConsumer.__new__(RouteConsumer)
        route.topic, route._consumer, route._committed = "work", FakeConsumer(), {}
        route._trackers = {0: OffsetTracker(), 1: OffsetTracker()}
        route._finished = SimpleQueue()
        route._forget = lambda: num_forgotten
        self.route = route

    def begin(self, *offsets: int) -> list[Origin]:
        return [self.route.begin(message(offset), ()) for offset in offsets]

    @property
    def commits(self) -> list[tuple[dict[int, int], bool]]:
        return self.route._consumer.commits  # type: ignore[no-any-return]


def finish(*origins: Origin) -> None:
    for origin in origins:
        origin.finished_by(message(0))


def test_only_what_is_finished_from_the_start_on_is_committed() -> None:
    bench = Bench()
    first, second, third = bench.begin(4, 5, 6)
    finish(second, third)
    bench.route.commit()
    assert bench.commits == [({0: 4}, False)]
    assert bench.route.num_open == 1
    finish(first)
    assert bench.route.num_open == 0
    bench.route.commit()
    bench.route.commit()
    assert bench.commits == [({0: 4}, False), ({0: 7}, False)]


def test_partitions_go_once_what_was_begun_is_answered_and_what_waits_is_read_again() -> None:
    """Three were handed over, of which two were not begun yet: they will be read again, by whoever is next."""
    bench = Bench(num_forgotten=2)
    begun, *_waiting = bench.begin(4, 5, 6)
    finish(begun)
    bench.route._on_revoke(None, [])
    assert bench.commits == [({0: 5}, True)]
    assert bench.route._trackers == {}


def test_partitions_go_in_time_though_an_answer_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "REVOKE_TIMEOUT_S", 0.01)
    bench = Bench()
    bench.begin(4)
    bench.route._on_revoke(None, [])
    assert bench.commits == [({0: 4}, True)]


def test_nothing_is_committed_of_partitions_that_were_lost() -> None:
    bench = Bench()
    [begun] = bench.begin(4)
    bench.route._on_lost(None, [])
    finish(begun)
    bench.route.commit(wait=True)
    assert bench.commits == []
