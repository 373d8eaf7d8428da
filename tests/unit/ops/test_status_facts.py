"""The fold holds the present, whatever the order and however often a record comes, and no more than that."""

import random

from ops.status.cells import cell_status
from ops.status.facts import MAX_REPORTERS, RECENT_WINDOWS
from ops.status.verdict import cell_troubles
from tests.unit.ops.status_makers import (
    END_MS,
    NOW_MS,
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


def test_a_controller_that_another_has_taken_over_from_is_named_and_not_shown() -> None:
    facts = facts_of([declaration()])
    facts.add(target(97), append_ms=END_MS, epoch=1)
    facts.add(target(98), append_ms=END_MS + 1, epoch=2)
    # An older record read after a younger one is no news.
    facts.add(target(97), append_ms=END_MS, epoch=1)
    assert facts.cells["us-east"].shut_out is None
    facts.add(target(99), append_ms=END_MS + 2, epoch=1)
    cell = facts.cells["us-east"]
    assert cell.target == target(98)
    seen = cell_status("us-east", cell, declaration(), now_ms=NOW_MS)
    assert seen.not_heard == "a controller of epoch 1 speaks for us-east beside one of epoch 2"
    troubles = list(cell_troubles(seen, now_ms=NOW_MS, lateness_ms=0, has_requests=False))
    assert "two_controllers" in {trouble.kind for trouble in troubles}


def shut_out_at(now_ms: int, *later: tuple[int, int]) -> str | None:
    """What is shown of a controller of epoch 1 beside one of epoch 3, after ``later`` windows and their epochs."""
    facts = facts_of([declaration()])
    for step, (index, epoch) in enumerate([(98, 3), (99, 1), *later]):
        facts.add(target(index), append_ms=END_MS + step, epoch=epoch)
    return cell_status("us-east", facts.cells["us-east"], declaration(), now_ms=now_ms).not_heard


def test_a_controller_that_was_not_heard_is_forgotten_once_its_last_target_is_over() -> None:
    over_ms = target(99).valid_until_ms
    assert shut_out_at(over_ms) is not None
    assert shut_out_at(over_ms + 1) is None


def test_a_controller_is_named_until_it_or_one_before_it_is_heard_again() -> None:
    assert shut_out_at(NOW_MS, (100, 3)) is not None
    # The last target of epoch 3 is over with the window 101.
    assert shut_out_at(NOW_MS, (101, 2)) is not None
    assert shut_out_at(NOW_MS, (101, 1)) is None
    assert shut_out_at(NOW_MS, (101, 0)) is None


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
