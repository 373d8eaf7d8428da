"""What a range holds: which windows count, latency by arm and phase, dropped work, and steps of time."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from ops.report.latency import NUM_AFTER, NUM_BEFORE
from ops.report.model import Latency, Report
from ops.report.series import MAX_STEPS
from ops.report.tally import Tally
from schemas.records import ControlWindow
from tests.unit.ops.report_makers import (
    WINDOW_MS,
    WINDOW_S,
    account,
    capacity,
    full_range,
    guard,
    latency,
    outcomes,
    pool,
    report_of,
    results,
)
from tests.unit.streams.control_makers import command_window


def taken(index: int) -> ControlWindow:
    return capacity(index, pool(units=1.0, taken={0: 3.0}, num_reclaims=1))


def requests(report: Report, group: str) -> dict[str, int]:
    return {row.phase: row.num_requests for row in report.latency if row.group == group}


def row(report: Report, group: str, phase: str = "all") -> Latency:
    return next(each for each in report.latency if (each.group, each.phase) == (group, phase))


def test_a_range_holds_the_windows_that_lie_wholly_in_it() -> None:
    windows = [latency(index, num_requests=10**index) for index in range(6)]
    report = report_of(windows, since_ms=1 * WINDOW_MS, until_ms=4 * WINDOW_MS + 1)

    assert report.covered.num_requests == 10 + 100 + 1_000
    assert report.covered.since == datetime.fromtimestamp(WINDOW_S, UTC)
    assert report.covered.until == datetime.fromtimestamp(4 * WINDOW_S, UTC)


def test_a_window_that_ingest_says_again_counts_once() -> None:
    once = [capacity(1), results(1, guard("none", [10.0])), results(1, guard("none", [20.0]), partition=1), outcomes(1)]
    again = [*once, capacity(2), *once]

    assert report_of(again).covered.num_repeated_windows == 4
    assert requests(report_of(again), "none") == {"all": 2, "other": 2}
    assert report_of(again).covered.num_outcomes == report_of(once).covered.num_outcomes


def test_cells_that_were_not_asked_for_and_commands_do_not_count() -> None:
    tally = Tally(since_ms=None, until_ms=None, cells=frozenset({"us-west"}))
    taken_in = [tally.add(window) for window in (capacity(1), capacity(1, cell="us-west"), command_window(1, "freeze"))]

    assert taken_in == [False, True, False]
    assert tally.covered(namespace="", num_unreadable=0).cells == ["us-west"]


def test_latency_is_told_with_and_without_optional_work() -> None:
    report = report_of(
        [
            results(1, guard("holdout", [10.0] * 4), guard("none", [12.0] * 4), guard("both", [40.0] * 100)),
            results(2, guard("rma", [20.0] * 50), guard("sbm", [30.0] * 50)),
        ]
    )

    assert requests(report, "without")["all"] == 8
    assert requests(report, "with")["all"] == 200
    assert row(report, "without").p99_ms == pytest.approx(12.0, rel=0.02)
    assert row(report, "with").p50_ms == pytest.approx(30.0, rel=0.02)
    assert [each.group for each in report.latency if each.phase == "all"] == [
        "without", "with", "holdout", "none", "rma", "sbm", "both"
    ]  # fmt: skip
    shares = [point.share for point in row(report, "with").cdf]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("results_first", [False, True])
def test_phases_are_those_of_the_capacity_windows_whichever_comes_first(results_first: bool) -> None:
    told = [taken(index) if index in (20, 21) else capacity(index) for index in range(40)]
    met = [results(index, guard("both", [10.0])) for index in range(40)]
    both = [window for pair in zip(met, told, strict=True) for window in (pair if results_first else pair[::-1])]

    during = 2 + NUM_AFTER
    expected = {"all": 40, "before": NUM_BEFORE, "during": during, "other": 40 - NUM_BEFORE - during}
    assert requests(report_of(both), "both") == expected
    # All of one kind before all of the other is the same.
    assert requests(report_of([*met, *told] if results_first else [*told, *met]), "both") == expected


def test_a_reclaim_of_one_cell_is_none_of_another() -> None:
    report = report_of([taken(1), capacity(1, cell="us-west"), results(1, guard("both", [10.0]), cell="us-west")])

    assert requests(report, "both") == {"all": 1, "other": 1}


def test_little_is_held_of_a_cell_without_capacity_windows() -> None:
    tally = Tally(since_ms=None, until_ms=None)
    for index in range(2_000):
        tally.add(results(index, guard("both", [10.0])))

    assert len(tally._phases["us-east"]._held) <= 256
    tally.close()
    assert tally.histograms["both", "other"].count == 2_000


def test_base_work_is_counted_by_phase() -> None:
    calm, late = latency(1, num_requests=50), latency(2, num_requests=40, num_base_late=1)
    report = report_of([capacity(1), calm, taken(2), late])

    found = {each.phase: (each.num_requests, each.num_base_late) for each in report.phases}
    assert found == {"before": (50, 0), "during": (40, 1)}


def test_dropped_work_is_told_by_reason_with_its_value() -> None:
    report = report_of(
        [
            latency(1, accounts=[account("rma", offered=100, sheds={"pressure": 20}, late=5, value=3_000_000)]),
            latency(2, accounts=[account("rma", offered=100, sheds={"gate_closed": 25}, value=1_000_000)]),
            latency(3, accounts=[account("rma", offered=50, value=0), account("sbm", offered=0)]),
        ]
    )

    (rma,) = report.shedding
    assert (rma.offered_units, rma.admitted_units, rma.late_units) == (250, 200, 5)
    assert rma.dropped_share == pytest.approx(0.2)
    assert rma.sheds == {"gate_closed": 25, "pressure": 20}
    assert rma.sheds_value == {"gate_closed": pytest.approx(25.0), "pressure": pytest.approx(60.0)}
    assert (rma.offered_value, rma.lost_value) == pytest.approx((400.0, 100.0))
    assert rma.value_lost_share == pytest.approx(0.25)
    assert (rma.num_windows_shedding, rma.num_windows) == (2, 3)


def test_arms_are_summed_over_segments() -> None:
    report = report_of(
        [results(1, guard("both", [1.0] * 3, num_late=1), guard("both", [1.0] * 2, segment="travel", num_late=1))]
    )

    (both,) = report.arms
    assert (both.num_requests, both.num_late) == (5, 2)


def test_a_step_of_time_holds_all_cells() -> None:
    report = report_of(
        [
            capacity(1, pool(units=4.0, unusable={"memory": 1.0})),
            capacity(1, pool(units=2.0), cell="us-west"),
            latency(1, accounts=[account("rma", offered=1_000, sheds={"pressure": 250})], num_routed=50),
        ]
    )

    (step,) = report.series.moments
    assert report.series.step_s == WINDOW_S
    assert (step.idle_units, step.usable_units) == pytest.approx((6.0, 5.0))
    assert (step.extra_candidates, step.coverage) == pytest.approx((5.0, 0.25))
    assert step.dropped_share == pytest.approx(0.25)


def test_steps_widen_so_that_a_long_range_is_as_small_as_a_short_one() -> None:
    windows = [capacity(index, pool(units=float(index % 5))) for index in range(1_000)]
    report = report_of(windows)

    steps = report.series.moments
    assert MAX_STEPS / 2 <= len(steps) <= MAX_STEPS
    assert {(after.start - before.start).total_seconds() for before, after in pairwise(steps)} == {report.series.step_s}
    assert report.series.step_s == 8 * WINDOW_S
    # The level is a mean: widening neither adds nor loses.
    assert sum(step.idle_units or 0.0 for step in steps) / len(steps) == pytest.approx(2.0, rel=0.01)


def test_the_same_windows_in_another_order_of_cells_and_kinds_give_the_same_report() -> None:
    windows = full_range(60)
    kinds = ["outcomes", "results", "latency", "capacity"]
    by_kind = sorted(windows, key=lambda window: kinds.index(window.kind))

    assert report_of(by_kind) == report_of(windows)
