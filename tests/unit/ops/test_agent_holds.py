"""What the owner has claimed stays claimed: over clocks that are set back, later claims, and gates about to open."""

from pathlib import Path

import msgspec
import pytest

from ops.agent.claim_files import HoldFile, holds_in, holds_locked, is_held, write_hold
from ops.agent.claims import Claims
from ops.agent.gates import HostGates
from ops.agent.holds import Hold, in_force
from ops.agent.notices import Notices
from ops.agent.plans import OpenGate
from ops.agent.reclaim import Host, reclaim
from ops.agent.settings import settings_of
from schemas.gate_reader import GateReader

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def file_of(ends_ms: int, reason: str = "launch") -> HoldFile:
    return HoldFile(starts_ms=0, ends_ms=ends_ms, reason=reason)


def claims(folder: Path, posted: list[Hold]) -> Claims:
    return Claims(settings_of('cell = "c"\n[sources.host]\n'), folder, lambda _: posted)


def test_a_signal_and_a_post_hold_although_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    looked = claims(tmp_path, [])
    looked.signalled()
    assert in_force(looked.look(NOW_MS), "p", NOW_MS) is not None
    back_ms = NOW_MS - MINUTE_MS
    assert in_force(looked.look(back_ms), "p", back_ms) is not None
    notices = Notices(hold_s=300.0, now_ms=lambda: NOW_MS, wake=lambda: None)
    assert notices.post(b"{}")[0] == 202
    assert in_force(notices.holds(back_ms), "p", back_ms) is not None


def test_a_hold_that_has_begun_does_not_begin_again(tmp_path: Path) -> None:
    hold = Hold(key="k", reason="k", starts_ms=NOW_MS, ends_ms=NOW_MS + MINUTE_MS)
    posted = [hold]
    looked = claims(tmp_path, posted)
    early_ms, back_ms = NOW_MS - 5_000, NOW_MS - MINUTE_MS
    assert in_force(looked.look(back_ms), "p", back_ms, early_ms=5_000) is None
    assert in_force(looked.look(early_ms), "p", early_ms, early_ms=5_000) is not None
    assert in_force(looked.look(back_ms), "p", back_ms, early_ms=5_000) is not None
    # Another one under its key is announced anew.
    posted[0] = Hold(key="k", reason="k", starts_ms=NOW_MS + 1, ends_ms=NOW_MS + MINUTE_MS)
    assert in_force(looked.look(back_ms), "p", back_ms, early_ms=5_000) is None


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
        ('{"at": "9999-12-31T23:59:59-12:00"}', ""),
        ('{"pools": ' + "[" * 4_000, ""),
    ],
)
def test_a_post_that_nobody_can_mean_is_refused(body: str, said: str) -> None:
    notices = Notices(hold_s=300.0, now_ms=lambda: NOW_MS, wake=lambda: None, known=lambda: ["p"])
    status, answer = notices.post(body.encode())
    assert (status, notices.holds(NOW_MS)) == (400, [])
    assert said in str(answer["error"])
    assert notices.post(msgspec.json.encode({"pools": ["p"], "for": "31d"}))[0] == 202
