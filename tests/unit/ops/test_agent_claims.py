"""The owner's claims: holds, the schedule, and files that are never trusted to be whole."""

import json
import os
from datetime import UTC, datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ops.agent.claim_files import (
    HoldFile,
    LeaseFile,
    NoticeFile,
    holds_in,
    holds_of_leases,
    holds_of_notices,
    notice_time_ms,
    remove_hold,
    write_hold,
)
from ops.agent.holds import Hold, coming, in_force
from ops.agent.moments import Now
from ops.agent.notices import Notices
from ops.agent.schedule import Scheduled
from ops.times import iso_time, parse_duration_s, parse_time_ms

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1e3)


def hold(starts_ms: int, ends_ms: int | None = None, *, pools: tuple[str, ...] = (), key: str = "k") -> Hold:
    return Hold(key=key, reason=key, starts_ms=starts_ms, ends_ms=ends_ms, pools=pools)


def test_a_hold_is_in_force_from_its_start_to_its_end_and_early_by_request() -> None:
    one = hold(100, 200)
    assert [in_force([one], "p", now) is one for now in (99, 100, 199, 200)] == [False, True, True, False]
    assert in_force([one], "p", 95, early_ms=5) is one
    assert in_force([hold(0)], "p", 10**12) is not None
    assert in_force([hold(0, pools=("q",))], "p", 5) is None


def test_of_several_the_first_to_begin_stands() -> None:
    late, early = hold(100, key="late"), hold(50, key="early")
    assert in_force([late, early], "p", 150) is early
    assert coming([late, early], "p", 10, within_ms=1_000) is early
    assert coming([late, early], "p", 60, within_ms=1_000) is late
    assert coming([late], "p", 10, within_ms=50) is None


def test_a_hold_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before"):
        hold(100, 99)


def test_a_scheduled_time_is_over_after_its_length() -> None:
    entry = Scheduled(name="launch", for_s=60.0, at_ms=1_000_000)
    assert [each.starts_ms for each in entry.holds(0)] == [1_000_000]
    assert entry.holds(1_059_999) != []
    assert entry.holds(1_060_000) == []


def test_a_daily_time_goes_by_the_clock_of_its_zone_also_when_that_changes() -> None:
    entry = Scheduled(name="peak", for_s=7_200.0, daily_at=time(7, 30), zone=ZoneInfo("Europe/Paris"))
    # The night of 29 March 2026 is an hour short there.
    starts = [each.starts_ms for each in entry.holds(ms("2026-03-28T12:00:00Z"))]
    assert starts == [ms("2026-03-29T05:30:00Z"), ms("2026-03-30T05:30:00Z")]
    assert entry.holds(ms("2026-03-28T06:30:00Z"))[0].starts_ms == ms("2026-03-28T06:30:00Z")
    # One that has begun and is not over stands first.
    assert entry.holds(ms("2026-03-29T07:00:00Z"))[0].starts_ms == ms("2026-03-29T05:30:00Z")


def test_days_without_it_are_left_out_and_long_ones_reach_over_midnight() -> None:
    weekend = Scheduled(name="w", for_s=2 * 86_400.0, daily_at=time(0, 0), days=("sat",))
    assert [each.starts_ms for each in weekend.holds(ms("2026-03-04T00:00:00Z"))] == [ms("2026-03-07T00:00:00Z")]
    assert weekend.holds(ms("2026-03-08T23:00:00Z"))[0].starts_ms == ms("2026-03-07T00:00:00Z")


def test_a_hold_file_claims_its_pool_until_it_is_over_and_is_then_removed(tmp_path: Path) -> None:
    write_hold(tmp_path, "h200-0", HoldFile(starts_ms=100, ends_ms=200, reason="launch"))
    (found,) = holds_in(tmp_path, 150)
    assert (found.pools, found.reason, found.starts_ms, found.ends_ms) == (("h200-0",), "launch", 100, 200)
    assert list(holds_in(tmp_path, 200)) == []
    assert list(tmp_path.glob("*.hold")) == []
    assert not remove_hold(tmp_path, "h200-0")


@pytest.mark.parametrize("text", ["", "{", '{"starts_ms": 1}', '{"starts_ms": 9, "ends_ms": 1, "reason": ""}'])
def test_a_hold_file_that_cannot_be_read_claims_its_pool_until_it_is_gone(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.hold").write_text(text)
    (found,) = holds_in(tmp_path, 10**13)
    assert (found.pools, found.ends_ms) == (("p",), None)


def test_no_runtime_folder_is_no_claim(tmp_path: Path) -> None:
    assert list(holds_in(tmp_path / "none", 0)) == []


def test_a_lease_counts_while_it_is_there_or_for_so_long_after_it_was_touched(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    for_ever, for_a_minute = LeaseFile(path=path), LeaseFile(path=path, ttl_s=60.0, pools=("p",))
    assert list(holds_of_leases([for_ever, for_a_minute], 0)) == []
    path.touch()
    os.utime(path, (1_000.0, 1_000.0))
    assert len(list(holds_of_leases([for_ever, for_a_minute], 1_059_999))) == 2
    (found,) = holds_of_leases([for_ever, for_a_minute], 1_060_000)
    assert found.pools == ()


def test_a_lease_that_is_touched_again_is_the_same_hold(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    seen = []
    for touched_s in (1_000.0, 1_010.0):
        path.touch()
        os.utime(path, (touched_s, touched_s))
        seen.append(list(holds_of_leases([LeaseFile(path=path, ttl_s=60.0)], 1_020_000)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", 0),
        ("TRUE", 0),
        ("{", 0),
        ('{"action": "terminate", "time": "2026-03-01T12:00:00Z"}', ms("2026-03-01T12:00:00Z")),
        ('{"at": "2026-03-01T12:00:00"}', ms("2026-03-01T12:00:00Z")),
        ("2026-03-01T12:00:00+01:00\n", ms("2026-03-01T11:00:00Z")),
        ("[]", 0),
        ('{"time": 5}', 0),
    ],
)
def test_a_notice_says_when_or_now(text: str, at: int, tmp_path: Path) -> None:
    assert notice_time_ms(text.encode()) == at
    path = tmp_path / "notice"
    assert list(holds_of_notices([NoticeFile(path=path)])) == []
    path.write_text(text)
    (found,) = holds_of_notices([NoticeFile(path=path)])
    assert (found.starts_ms, found.ends_ms, found.reason) == (at, None, "preemption")


def test_a_post_becomes_a_hold_and_wakes_the_agent() -> None:
    woken: list[bool] = []
    now_ms = ms("2026-03-01T12:00:00Z")
    notices = Notices(hold_s=300.0, now=lambda: Now(now_ms, 0), wake=lambda: woken.append(True))
    status, said = notices.post(b"")
    assert (status, said) == (202, {"starts": "2026-03-01T12:00:00.000Z", "ends": "2026-03-01T12:05:00.000Z"})
    assert notices.post(b'{"pools": ["p"], "at": "+2m", "for": "10m", "reason": "launch"}')[0] == 202
    first, second = notices.holds(Now(now_ms, 0))
    assert (first.pools, first.ends_ms) == ((), now_ms + 300_000)
    assert (second.pools, second.starts_ms, second.ends_ms) == (("p",), now_ms + 120_000, now_ms + 720_000)
    assert len(woken) == 2
    assert [each.key for each in notices.holds(Now(now_ms + 300_000, 300 * 10**9))] == [second.key]


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"pool": "p"}', '{"at": "tomorrow"}', '{"for": "long"}', '{"pools": ["../x"]}']
)
def test_a_post_that_is_none_is_refused_with_the_reason(body: str) -> None:
    notices = Notices(hold_s=300.0, now=lambda: Now(0, 0), wake=lambda: None)
    status, said = notices.post(body.encode())
    assert status == 400
    assert said["error"]
    assert notices.holds(Now(0, 0)) == []
    json.dumps(said)


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30.0), ("1h30m", 5_400.0), ("250ms", 0.25), ("1.5d", 129_600.0)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "5x", "5m!"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration_s(text)


def test_times() -> None:
    now_ms = ms("2026-03-01T12:00:00Z")
    assert parse_time_ms("-15m", now_ms=now_ms) == now_ms - 900_000
    assert parse_time_ms("+2m", now_ms=now_ms) == now_ms + 120_000
    assert parse_time_ms("2026-03-01T13:00:00+01:00", now_ms=0) == now_ms
    assert iso_time(now_ms + 5) == "2026-03-01T12:00:00.005Z"
    assert datetime.fromisoformat(iso_time(now_ms)).tzinfo == UTC
    for text, why in (("2026-03-01T12:00:00", "no zone"), ("yesterday", "no time"), ("-5", "no duration")):
        with pytest.raises(ValueError, match=why):
            parse_time_ms(text, now_ms=0)
