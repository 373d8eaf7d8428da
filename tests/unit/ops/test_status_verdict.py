"""What is stale and why, on a fake clock; one line for the whole."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec.structs import replace as struct_replace

from ops.status.build import DeadLetterFacts, PartFacts, Readings, build_status
from ops.status.model import Status
from ops.status.parts import PartitionFacts
from ops.status.verdict import GROWING_S, NOTHING_NEW_S, OVERDUE_WINDOWS
from tests.unit.ops.status_makers import (
    ALL_WELL,
    END_MS,
    NAMESPACE,
    NOW_MS,
    TIME,
    WELL,
    WINDOW_MS,
    capacity_window,
    declaration,
    facts_of,
    latency_window,
    part,
    read_to_end,
    status_of,
    target,
)


def kinds(status: Status) -> list[str]:
    return [trouble.kind for trouble in status.troubles]


def with_requests(num: int) -> Sequence[PartFacts]:
    requests = PartFacts(
        part=part("router"), num_members=1, partitions=[PartitionFacts(partition=0, low=0, end=num, committed=num)]
    )
    return [requests if known.part.name == "router" else known for known in ALL_WELL]


def test_all_is_well() -> None:
    seen = status_of()
    assert seen.troubles == []
    assert seen.verdict.state == "ok"
    assert seen.verdict.line == "1 cell, targets valid, no part behind by more than 0.0 s"


def test_a_fresh_pipeline_says_what_it_waits_for() -> None:
    unused = [PartFacts(part=part("router"), num_members=0, partitions=[PartitionFacts(partition=0, low=0, end=0)])]
    empty = status_of([], parts=unused)
    assert (empty.verdict.state, kinds(empty), empty.newest) == ("waiting", ["no_cell"], None)
    assert "intertidal cells add" in empty.verdict.line
    declared = status_of([declaration()], parts=unused)
    assert (declared.verdict.state, kinds(declared)) == ("waiting", ["no_window"])
    assert "no capacity and no latency window yet" in declared.verdict.line
    assert "nobody runs it" not in declared.verdict.line
    alone = [PartFacts(part=part("ingest", "fleet"), num_members=0, partitions=unused[0].partitions)]
    assert status_of([declaration()], parts=alone).verdict.line.endswith("ingest closes the first, and nobody runs it")
    coming = status_of([declaration(from_window=500)], parts=unused)
    assert (coming.verdict.state, kinds(coming)) == ("waiting", ["no_window"])
    closed = status_of([declaration(), capacity_window(), latency_window()], parts=unused)
    assert (closed.verdict.state, kinds(closed)) == ("waiting", ["no_target"])


def test_what_has_stopped_counts_for_more_than_what_has_yet_to_begin() -> None:
    seen = status_of([*WELL, declaration("a-new-cell")], now_ms=target().valid_until_ms + 1)
    assert seen.verdict.state == "attention"
    assert "no_window" in kinds(seen)
    assert seen.verdict.line.startswith("us-east: target expired 0.0 s ago")


@pytest.mark.parametrize(("late_ms", "is_overdue"), [(0, False), (1, True)])
def test_a_window_is_overdue_after_three_windows_and_the_lateness(late_ms: int, is_overdue: bool) -> None:
    now_ms = END_MS + OVERDUE_WINDOWS * WINDOW_MS + TIME.lateness_ms + late_ms
    # Capacity is up to date; it is the latency window that does not come.
    seen = status_of([*WELL, capacity_window(101)], now_ms=now_ms)
    details = [trouble.detail for trouble in seen.troubles if trouble.kind == "window_overdue"]
    assert [detail.split(" ended")[0] for detail in details] == (["last latency window"] if is_overdue else [])


def test_an_expired_target_is_stale_by_its_own_time() -> None:
    seen = status_of(now_ms=target().valid_until_ms + 12_300)
    (expired,) = [trouble for trouble in seen.troubles if trouble.kind == "target_expired"]
    assert (expired.subject, expired.detail) == ("us-east", "target expired 12.3 s ago: base work only")


@pytest.mark.parametrize(("num_requests", "expected"), [(0, []), (5, ["no_router"])])
def test_no_router_is_wrong_only_where_there_are_requests(num_requests: int, expected: list[str]) -> None:
    blind = [*WELL, latency_window(100, num_requests=0, num_routers=0)]
    assert kinds(status_of(blind, parts=with_requests(num_requests))) == expected


def test_late_base_answers_are_told() -> None:
    window = latency_window(100)
    assert window.latency is not None
    late = struct_replace(window, latency=struct_replace(window.latency, num_base_late=3))
    seen = status_of([*WELL, late])
    assert kinds(seen) == ["base_late"]
    assert seen.verdict.line == "us-east: 3 base answers late in the last latency window"


@pytest.mark.parametrize(("candidates", "expected"), [(65, []), (64, ["over_limit"])])
def test_a_broken_limit_is_told_when_nothing_is_left_to_take_off(candidates: int, expected: list[str]) -> None:
    seen = status_of([*WELL, latency_window(100, latency_ms=200.0), target(100, candidates=candidates)])
    assert kinds(seen) == expected


def test_silent_reporters_are_named_once_a_cell() -> None:
    seen = status_of(now_ms=END_MS + 5_200)
    (silent,) = [trouble for trouble in seen.troubles if trouble.kind == "reporter_silent"]
    assert silent.detail == "2 of 2 reporters silent: router-1 for 5.1 s, wide-1 for 5.1 s"


def test_an_absent_part_is_named_unless_it_is_idle_capacity() -> None:
    gone = [replace(known, num_members=0) for known in ALL_WELL]
    absent = [trouble for trouble in status_of(parts=gone).troubles if trouble.kind == "part_absent"]
    assert [trouble.subject for trouble in absent] == ["ingest", "ingest", "control", "router", "ranker.baseline"]
    assert absent[2].detail == "nobody reads t.control.windows"


def test_a_stalled_part_is_named_with_what_waits() -> None:
    behind = PartitionFacts(partition=0, low=0, end=10, committed=4, newest_ms=NOW_MS - 1_000, first_ms=NOW_MS - 20_000)
    stalled = [replace(known, partitions=[behind]) for known in ALL_WELL if known.part.name == "control"]
    seen = status_of(parts=stalled)
    assert kinds(seen) == ["part_stalled"]
    assert seen.verdict.line == "control: 6 records of t.control.windows not done, the oldest for 20.0 s"


@pytest.mark.parametrize(("age_s", "expected"), [(GROWING_S, ["dead_letters_growing"]), (GROWING_S + 1, [])])
def test_dead_letters_that_still_come_are_told(age_s: float, expected: list[str]) -> None:
    letters = DeadLetterFacts(
        topic="t.fleet.capacity.dlq", count=12, num_open=12, newest_ms=NOW_MS - round(age_s * 1_000)
    )
    seen = status_of(dead_letters=[letters])
    assert kinds(seen) == expected
    assert [(known.count, known.is_growing) for known in seen.dead_letters] == [(12, bool(expected))]


@pytest.mark.parametrize(("num_before", "is_growing"), [({}, False), ({"t.x.dlq": 12}, False), ({"t.x.dlq": 11}, True)])
def test_dead_letters_that_came_between_two_looks_are_growing(num_before: dict[str, int], is_growing: bool) -> None:
    # Older than any that is called young: a broker that says no times is believed by its counts.
    letters = DeadLetterFacts(topic="t.x.dlq", count=12, num_open=12, newest_ms=None)
    readings = Readings(facts=facts_of(WELL), dead_letters=[letters], num_letters_before=num_before)
    (seen,) = build_status(readings, NAMESPACE, time=TIME, now_ms=NOW_MS).dead_letters
    assert seen.is_growing is is_growing


def test_dead_letters_that_are_done_are_growing_no_more() -> None:
    letters = DeadLetterFacts(topic="t.x.dlq", count=12, num_open=0, newest_ms=NOW_MS)
    (seen,) = status_of(dead_letters=[letters]).dead_letters
    assert (seen.count, seen.num_open, seen.is_growing) == (12, 0, False)


def test_the_stalest_cell_is_the_one_with_the_oldest_last_news() -> None:
    assert status_of([declaration()]).stalest is None
    fresh = status_of().stalest
    assert fresh is not None
    later = status_of(now_ms=NOW_MS + 7_000).stalest
    assert later is not None
    assert (later.cell, later.what, later.age_s) == (fresh.cell, fresh.what, round(fresh.age_s + 7.0, 3))
    old = [*WELL, declaration("old"), struct_replace(capacity_window(90), cell="old")]
    stalest = status_of(old).stalest
    assert stalest is not None
    assert (stalest.cell, stalest.what) == ("old", "capacity")


def test_a_part_that_does_not_run_says_why() -> None:
    behind = PartitionFacts(partition=0, low=0, end=10, committed=4, newest_ms=NOW_MS, first_ms=NOW_MS - 20_000)
    parts = [
        PartFacts(part=part("control"), num_members=1, partitions=[behind]),
        PartFacts(part=part("router"), num_members=0, partitions=[behind]),
        PartFacts(part=part("ranker.wide"), num_members=0, partitions=[PartitionFacts(partition=0, low=0, end=0)]),
        read_to_end("ingest", "fleet"),
    ]
    assert [known.reason for known in status_of(parts=parts).parts] == [
        "6 records of t.control.windows not done, the oldest for 20.0 s",
        "nobody reads t.ranking.requests, 6 records to read",
        "nobody reads t.ranking.work.wide, and nothing is to read",
        None,
    ]


def test_an_unreadable_record_is_counted_and_named_and_not_fatal() -> None:
    facts = facts_of(WELL)
    facts.add_unreadable("t.control.windows", "partition 3, offset 7: bad_framing: starts with 6e6f")
    facts.add_unreadable("t.control.windows", "partition 3, offset 9: bad_framing: starts with 6e6f")
    seen = status_of(facts=facts)
    assert kinds(seen) == ["unreadable"]
    assert [(bad.count, "offset 9" in bad.example) for bad in seen.unreadable] == [(2, True)]
    assert len(seen.cells) == 1


def test_silence_everywhere_names_both_causes() -> None:
    seen = status_of(now_ms=NOW_MS + round(NOTHING_NEW_S * 1_000) + 1)
    assert kinds(seen)[0] == "nothing_new"
    assert "clock is ahead" in seen.verdict.line


def test_a_clock_behind_the_brokers_makes_nothing_younger_than_it_is() -> None:
    assert status_of(now_ms=NOW_MS - 3_600_000).time == status_of(now_ms=NOW_MS).time


def test_a_retired_cell_is_no_trouble_unless_it_is_the_last() -> None:
    old = declaration("old", until_window=10)
    seen = status_of([*WELL, old], parts=[read_to_end("router")])
    assert [(cell.cell, cell.state) for cell in seen.cells] == [("old", "retired"), ("us-east", "declared")]
    assert seen.verdict.state == "ok"
    assert kinds(status_of([old], parts=[])) == ["no_cell"]
