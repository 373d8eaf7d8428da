"""What the owner has claimed stays claimed: over clocks that are set back, later claims, and gates about to open."""

from pathlib import Path

import msgspec
import pytest

from ops.agent.claim_files import HoldFile, holds_in, holds_locked, is_held, write_hold
from ops.agent.claims import Claims
from ops.agent.gates import HostGates
from ops.agent.holds import Hold, in_force
from ops.agent.moments import Now
from ops.agent.notices import Notices
from ops.agent.plans import OpenGate
from ops.agent.posted_holds import FILE_NAME
from ops.agent.reclaim import Host, reclaim
from ops.agent.settings import settings_of
from schemas.gate_reader import GateReader

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def file_of(ends_ms: int, reason: str = "launch") -> HoldFile:
    return HoldFile(starts_ms=0, ends_ms=ends_ms, reason=reason)


def at(wall_ms: int, *, after_s: float = 0.0) -> Now:
    """A wall clock's time, and how long by the monotonic one since the first look."""
    return Now(wall_ms=wall_ms, mono_ns=round((1_000.0 + after_s) * 1e9))


START = at(NOW_MS)


def notices_in(folder: Path | None, now: Now = START, known: list[str] | None = None) -> Notices:
    return Notices(
        hold_s=300.0, now=lambda: now, wake=lambda: None, known=None if known is None else lambda: known, folder=folder
    )


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
@pytest.mark.parametrize("way", ["signal", "post"])
def test_a_signal_and_a_post_last_as_long_as_they_were_to_whatever_the_wall_clock_does(way: str, jump_ms: int) -> None:
    notices = notices_in(None)
    if way == "signal":
        notices.signalled(at(NOW_MS))
    else:
        assert notices.post(b"{}")[0] == 202
    for after_s, is_claimed in ((0.0, True), (299.9, True), (300.0, False)):
        now = at(NOW_MS + jump_ms + round(after_s * 1e3), after_s=after_s)
        assert (in_force(notices.holds(now), "p", now.wall_ms) is not None) == is_claimed


def test_a_post_for_a_time_of_day_goes_by_the_wall_clock(tmp_path: Path) -> None:
    notices = notices_in(tmp_path)
    assert notices.post(b'{"at": "+2m", "for": "10m"}')[0] == 202
    (hold,) = notices.holds(at(NOW_MS + MINUTE_MS, after_s=1_000.0))
    assert (hold.starts_ms, hold.ends_ms) == (NOW_MS + 2 * MINUTE_MS, NOW_MS + 12 * MINUTE_MS)


def test_an_agent_that_is_started_anew_remembers_what_was_signalled_and_posted(tmp_path: Path) -> None:
    notices = notices_in(tmp_path)
    notices.signalled(at(NOW_MS))
    assert notices.post(b'{"pools": ["p"], "for": "10m", "reason": "launch"}')[0] == 202
    assert notices.post(b'{"pools": ["q"], "at": "+1h", "reason": "later"}')[0] == 202
    # A monotonic clock that began anew says nothing about before.
    later = Now(wall_ms=NOW_MS + MINUTE_MS, mono_ns=5)
    again = notices_in(tmp_path, later)
    assert again.holds(later) == notices.holds(at(NOW_MS + MINUTE_MS, after_s=60.0))
    assert {hold.reason for hold in again.holds(later)} == {"signal", "launch", "later"}
    over = Now(wall_ms=NOW_MS + 10 * MINUTE_MS, mono_ns=5 + 540 * 10**9)
    assert [hold.reason for hold in again.holds(over)] == ["later"]
    assert [hold.reason for hold in notices_in(tmp_path, over).holds(over)] == ["later"]


@pytest.mark.parametrize("text", [b"", b"[{", b'[{"key": 1}]', b"[" * 2_000_000])
def test_posts_that_cannot_be_read_any_more_hold_everything_for_a_while(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(text)
    notices = notices_in(tmp_path)
    (hold,) = notices.holds(at(NOW_MS))
    assert (hold.pools, hold.reason) == ((), "unreadable_hold")
    assert notices.holds(at(NOW_MS + 300_000, after_s=300.0)) == []
    # And then the file is whole again.
    assert notices_in(tmp_path).holds(at(NOW_MS)) == []


def test_a_post_holds_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    notices = notices_in(tmp_path / "file" / "run")
    assert notices.post(b"{}")[0] == 202
    assert [hold.reason for hold in notices.holds(at(NOW_MS))][-1] == "notice"


def test_a_hold_that_has_begun_does_not_begin_again(tmp_path: Path) -> None:
    hold = Hold(key="k", reason="k", starts_ms=NOW_MS, ends_ms=NOW_MS + MINUTE_MS)
    looked = Claims(settings_of('cell = "c"\n[sources.host]\n'), tmp_path)
    early_ms, back_ms = NOW_MS - 5_000, NOW_MS - MINUTE_MS
    assert in_force(looked.look(back_ms, [hold]), "p", back_ms, early_ms=5_000) is None
    assert in_force(looked.look(early_ms, [hold]), "p", early_ms, early_ms=5_000) is not None
    assert in_force(looked.look(back_ms, [hold]), "p", back_ms, early_ms=5_000) is not None
    # Another one under its key is announced anew.
    hold = Hold(key="k", reason="k", starts_ms=NOW_MS + 1, ends_ms=NOW_MS + MINUTE_MS)
    assert in_force(looked.look(back_ms, [hold]), "p", back_ms, early_ms=5_000) is None


def test_a_command_holds_although_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    gates = HostGates(lease_s=2.0)
    gates.add("h", "p", tmp_path / "run")
    host = Host(folder=tmp_path / "run", wall_ms=lambda: NOW_MS)
    reclaim(["p"], host, for_s=300.0, reason="x", timeout_s=None)
    back_ms = NOW_MS - MINUTE_MS
    assert in_force(holds_in(tmp_path / "run", back_ms), "p", back_ms) is not None
    gates.shutdown()


def test_a_later_and_shorter_claim_does_not_shorten_an_earlier_one(tmp_path: Path) -> None:
    write_hold(tmp_path, "p", file_of(NOW_MS + 2 * MINUTE_MS, "deployment"))
    write_hold(tmp_path, "p", file_of(NOW_MS + MINUTE_MS, "launch"))
    (hold,) = holds_in(tmp_path, NOW_MS)
    assert (hold.ends_ms, hold.reason) == (NOW_MS + 2 * MINUTE_MS, "launch")
    write_hold(tmp_path, "p", file_of(NOW_MS + 3 * MINUTE_MS))
    assert not is_held(tmp_path, "p", NOW_MS + 3 * MINUTE_MS)
    assert is_held(tmp_path, "p", NOW_MS + 3 * MINUTE_MS - 1)


def test_a_hold_that_is_over_is_not_removed_while_somebody_writes_another(tmp_path: Path) -> None:
    write_hold(tmp_path, "p", file_of(NOW_MS))
    with holds_locked(tmp_path, wait=True):
        assert list(holds_in(tmp_path, NOW_MS)) == []
        assert (tmp_path / "p.hold").exists()
    assert list(holds_in(tmp_path, NOW_MS)) == []
    assert not (tmp_path / "p.hold").exists()


def test_what_is_told_to_be_drained_is_not_opened_by_an_agent_that_had_looked_before(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    gates = HostGates(lease_s=2.0, wall_ms=lambda: NOW_MS)
    gates.add("h", "p", folder)
    seen = list(holds_in(folder, NOW_MS))
    done = reclaim(["p"], Host(folder=folder, wall_ms=lambda: NOW_MS), for_s=300.0, reason="x", timeout_s=5.0)
    assert (seen, done.is_drained) == ([], True)
    assert not gates.take("h", OpenGate("p"))
    ranker = GateReader("p", folder=folder)
    assert not ranker.is_open()
    (folder / "p.hold").unlink()
    with holds_locked(folder, wait=True):
        assert not gates.take("h", OpenGate("p"))
    assert gates.take("h", OpenGate("p"))
    assert ranker.is_open()
    ranker.close()
    gates.shutdown()


def test_a_gate_that_opens_before_the_hold_is_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    gates = HostGates(lease_s=2.0)
    gates.add("h", "p", folder)
    lock = holds_locked

    def opened_first(folder: Path, *, wait: bool) -> object:
        assert gates.take("h", OpenGate("p"))
        return lock(folder, wait=wait)

    monkeypatch.setattr("ops.agent.reclaim.holds_locked", opened_first)
    done = reclaim(["p"], Host(folder=folder), for_s=300.0, reason="x", timeout_s=None)
    assert (done.is_drained, done.pools[0].state) == (False, "open")
    gates.shutdown()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"pools": ["p", "other"]}', "other"),
        ('{"for": "32d"}', "31 days"),
        ('{"for": "99999999999d"}', "31 days"),
        ('{"for": "' + "9" * 400 + 'd"}', "31 days"),
        ('{"at": "+99999999999d"}', ""),
        ('{"at": "0001-01-01T00:00:00Z"}', "1970"),
        ('{"at": "9999-12-31T23:59:59-12:00"}', ""),
        ('{"pools": ' + "[" * 4_000, ""),
    ],
)
def test_a_post_that_nobody_can_mean_is_refused(body: str, said: str) -> None:
    notices = notices_in(None, known=["p"])
    status, answer = notices.post(body.encode())
    assert (status, notices.holds(at(NOW_MS))) == (400, [])
    assert said in str(answer["error"])
    assert notices.post(msgspec.json.encode({"pools": ["p"], "for": "31d"}))[0] == 202
