"""How much of a pipeline one look reads: tails of bounded length, whatever stands in front of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ops.status.facts import Facts
from ops.status.positions import Extent
from ops.status.recent import RecentReader
from ops.status.tails import Place, Span
from schemas.framing import encode
from schemas.topics import CONTROL_CELLS, CONTROL_TARGETS, CONTROL_WINDOWS, SERVING_LATENCY, TOPICS
from tests.unit.ops.status_makers import END_MS, TIME, declaration, target

ENDLESS = 10**9
MOST_RECORDS_OF_A_LOOK = 200_000
NEWEST_MS = END_MS + 100
Logs = Mapping[str, Sequence[tuple[str, Struct | bytes | None]]]


class PlayedMessage:
    def __init__(self, place: Place, offset: int, key: str, value: Struct | bytes | None) -> None:
        self._place, self._offset, self._key = place, offset, key.encode()
        self._value = encode(value) if isinstance(value, Struct) else value

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 2, NEWEST_MS


class PlayedTopics:
    """Topics whose last records are ``logs``, in partition 0, behind as many others as one likes."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.spans: list[tuple[Place, Span]] = []

    def read(self, spans: Mapping[Place, Span]) -> Iterator[Any]:
        for place, span in spans.items():
            self.spans.append((place, span))
            records = self.logs.get(place[0], ())
            for offset, (key, value) in enumerate(records, start=ENDLESS - len(records)):
                if place[1] == 0 and span.start <= offset < span.end:
                    yield PlayedMessage(place, offset, key, value)

    def offsets_at(self, places: Sequence[Place], time_ms: int) -> dict[Place, int | None]:
        assert time_ms == NEWEST_MS - 30_000
        # Nothing young in the odd ones; far too much in the others.
        return {place: None if place[1] % 2 else 5 for place in places}


def read(logs: Logs, *, low: int = 0) -> tuple[Facts, PlayedTopics]:
    topics: Any = PlayedTopics(logs)
    places = {topic.name: [(topic.name, number) for number in range(topic.num_partitions)] for topic in TOPICS}
    extents = {
        place: Extent(low=low, end=ENDLESS, newest_ms=NEWEST_MS) for of_topic in places.values() for place in of_topic
    }
    return RecentReader(topics, topics, places=places, extents=extents, time=TIME).read(), topics


def test_what_is_read_is_bounded_by_the_cells_and_not_by_the_topics() -> None:
    cells = [(name, declaration(name)) for name in ("a", "b", "c")]
    targets = [(name, target(cell=name)) for name in ("a", "b", "c")]
    _, topics = read({CONTROL_CELLS.name: cells, CONTROL_TARGETS.name: targets})
    spans = [span for place, span in topics.spans if place[0] != CONTROL_CELLS.name]
    assert 0 < sum(span.end - span.start for span in spans) < 10_000
    many = [(f"cell-{n}", declaration(f"cell-{n}")) for n in range(9_000)]
    _, topics = read({CONTROL_CELLS.name: many})
    assert sum(span.end - span.start for _, span in topics.spans) < MOST_RECORDS_OF_A_LOOK


def test_every_tail_ends_where_its_partition_did_when_the_look_began() -> None:
    _, topics = read({CONTROL_CELLS.name: [("a", declaration("a"))], CONTROL_TARGETS.name: [("a", target(cell="a"))]})
    assert {span.end for _, span in topics.spans} == {ENDLESS}


def test_no_tail_begins_before_the_first_record_that_is_kept() -> None:
    _, topics = read({CONTROL_CELLS.name: [("a", declaration("a"))]}, low=ENDLESS - 7)
    assert {span.start for place, span in topics.spans if place[0] == CONTROL_WINDOWS.name} >= {ENDLESS - 7}
    assert min(span.start for _, span in topics.spans) >= ENDLESS - 7


def test_a_target_far_behind_the_others_is_found() -> None:
    others: list[tuple[str, Struct | bytes | None]] = [("b", target(cell="b"))] * 300
    cells = [(name, declaration(name)) for name in ("a", "b")]
    facts, _ = read({CONTROL_CELLS.name: cells, CONTROL_TARGETS.name: [("a", target(1, cell="a")), *others]})
    assert facts.cells["a"].target == target(1, cell="a")
    assert facts.cells["b"].target == target(cell="b")


def test_reporters_are_sought_by_time_and_by_count() -> None:
    _, topics = read({})
    lengths = {place[1]: span.end - span.start for place, span in topics.spans if place[0] == SERVING_LATENCY.name}
    assert set(lengths.values()) == {0, 1_000}
    assert all((length == 0) == bool(number % 2) for number, length in lengths.items())


def test_a_key_taken_back_is_nothing_and_a_strange_record_is_counted() -> None:
    facts, _ = read({CONTROL_CELLS.name: [("a", declaration("a")), ("a", None), ("x", b"strange")]})
    assert list(facts.cells) == ["a"]
    assert facts.unreadable == {"control.cells": 1}
    assert facts.unreadable_example["control.cells"].startswith(f"partition 0, offset {ENDLESS - 1}: bad_framing")
