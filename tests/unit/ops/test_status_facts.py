"""The fold holds the present, whatever the order and however often a record comes, and no more than that."""

import random

from ops.status.facts import MAX_REPORTERS, RECENT_WINDOWS
from tests.unit.ops.status_makers import (
    WELL,
    capacity_window,
    declaration,
    facts_of,
    interval,
    latency_window,
    snapshot,
    status_of,
    target,
)


def test_order_and_repetition_change_nothing() -> None:
    expected = status_of()
    for seed in range(10):
        # The order within a topic is that of the log; a controller sends its last output again after a crash.
        shuffled = [*WELL, WELL[2], WELL[4], WELL[6]]
        random.Random(seed).shuffle(shuffled)
        targets = sorted((r for r in shuffled if type(r) is type(WELL[1])), key=lambda r: r.window_index)  # type: ignore[attr-defined]
        others = [r for r in shuffled if type(r) is not type(WELL[1])]
        assert status_of([*others, *targets]) == expected


def test_an_older_target_or_pool_takes_no_ones_place() -> None:
    cell = facts_of([target(), target(97), snapshot(99), snapshot(98, bottleneck="old")]).cells["us-east"]
    assert cell.target == target()
    assert cell.previous_target is None
    assert cell.pools["a100"].bottleneck == ""


def test_only_recent_windows_are_held() -> None:
    records = [make(index) for index in range(50) for make in (capacity_window, latency_window)]
    cell = facts_of([declaration(), *records]).cells["us-east"]
    assert len(cell.capacity) == len(cell.latency) == RECENT_WINDOWS
    last = cell.last_capacity()
    assert last is not None
    assert last.window_index == 49


def test_invented_reporters_are_bounded_and_forgotten() -> None:
    facts = facts_of(interval(f"router-{n}") for n in range(MAX_REPORTERS + 5))
    assert len(facts.cells["us-east"].reporters) == MAX_REPORTERS
    facts.add(interval("router-0"), append_ms=10**9)
    facts.forget_reporters(10**9)
    assert list(facts.cells["us-east"].reporters) == ["router-0"]
