"""A run on real files: what its files cannot show is not judged, and everything else is."""

from typing import Any, Literal

import pytest

from ops.demo.judgement import AFTER, BEFORE, DURING, NEVER_MS, not_judged
from ops.demo.ledger import Ledger
from ops.demo.report import Run, broken_invariants, build_report, first_reclaim
from ops.demo.summary import summary_lines
from schemas.records import CapacityEvent, Offer

FILES: dict[str, Any] = {
    "arrivals": {
        "name": "trace.csv",
        "rows": 9,
        "used": 8,
        "dirty": {"bad_time": {"rows": 1, "first_lines": [4]}},
        "factors": {"from_s": 0.0, "speed": 2.0},
    }
}
ALL_OFFERED = {"before": 5, "reclaim": 5, "after": 5}


def run_of(files: dict[str, Any]) -> Run:
    return Run(
        scenario="t",
        warm_up_end_ms=1_000,
        traffic_end_ms=11_000,
        requests_per_s=1.0,
        deadline_ms=500,
        window_ms=1_000,
        host_ttl_ms=60_000,
        restarts={},
        callers={},
        files=files,
    )


def ledger_of(*events: tuple[int, str, Literal["offer", "update", "reclaim"], float]) -> Ledger:
    ledger = Ledger()
    for time_ms, host, kind, units in events:
        offers = [Offer(accelerator="cpu", units=units, cpu_cores=1.0, memory_bytes=1, idle_cause="off_peak")]
        event = CapacityEvent(
            cell="c",
            host=host,
            epoch_ms=0,
            seq=time_ms,
            event_time_ms=time_ms,
            kind=kind,
            offers=offers if units else [],
        )
        ledger.add(event, append_ms=time_ms)
    return ledger


def test_a_stretch_without_a_reclaim_breaks_nothing_and_says_so() -> None:
    ledger = ledger_of((500, "a", "offer", 1.0))
    report = build_report(ledger, run_of(FILES))
    assert set(report["not_judged"]) == {BEFORE, DURING, AFTER}
    # Not one request was taken: that is judged on whatever files.
    assert broken_invariants(report) == ["requests were taken"]
    assert all(seen == {"p50": None, "p99": None, "n": 0} for seen in report["latency_ms"].values())


def test_a_silent_run_around_a_reclaim_is_not_judged_by_optional_work() -> None:
    ledger = ledger_of((500, "a", "offer", 1.0), (4_000, "a", "reclaim", 0.0), (6_000, "a", "offer", 1.0))
    assert broken_invariants(build_report(ledger, run_of(FILES))) == ["requests were taken"]
    assert set(broken_invariants(build_report(ledger, run_of({})))) >= {BEFORE, DURING, AFTER}


def test_with_traffic_around_a_whole_reclaim_everything_is_judged() -> None:
    ledger = ledger_of((500, "a", "offer", 1.0), (4_000, "a", "reclaim", 0.0), (6_000, "a", "offer", 1.0))
    assert not_judged(ledger, ALL_OFFERED, first_reclaim(ledger)) == {}


@pytest.mark.parametrize(("phase", "rule"), [("before", BEFORE), ("reclaim", DURING), ("after", AFTER)])
def test_a_phase_without_extras_is_not_judged(phase: str, rule: str) -> None:
    ledger = ledger_of((500, "a", "offer", 1.0), (4_000, "a", "reclaim", 0.0), (6_000, "a", "offer", 1.0))
    assert list(not_judged(ledger, {**ALL_OFFERED, phase: 0}, first_reclaim(ledger))) == [rule]


def test_sheds_are_not_asked_for_while_another_host_ranks_on() -> None:
    ledger = ledger_of(
        (500, "a", "offer", 1.0), (500, "b", "offer", 1.0), (4_000, "a", "reclaim", 0.0), (9_000, "b", "reclaim", 0.0)
    )
    reasons = not_judged(ledger, ALL_OFFERED, first_reclaim(ledger))
    assert reasons == {
        DURING: "other hosts stayed offered, and may have ranked everything",
        AFTER: "what was taken back did not return within the run",
    }


def test_the_first_reclaim_of_a_host_that_never_returns_has_no_end() -> None:
    assert first_reclaim(ledger_of((4_000, "a", "reclaim", 0.0))) == (4_000, NEVER_MS)


def test_the_summary_tells_of_files_and_of_what_was_not_judged() -> None:
    lines = list(summary_lines(build_report(ledger_of((500, "a", "offer", 1.0)), run_of(FILES))))
    assert "arrivals   trace.csv: 8 of 9 used, odd: 1 bad_time; from_s 0, speed 2" in lines
    assert f"not judged {BEFORE}: nothing was taken back within the run" in lines
