"""Idle capacity, what was put to work, taken back and spent, and how CPU fitted: by hand from hand-made windows."""

import pytest
from msgspec.structs import replace

from ops.report.model import Report, Use
from schemas.records import AcceleratorFit, CellLimits, LeverTerms
from tests.unit.ops.report_makers import LIMITS, WINDOW_S, busy, capacity, latency, pool, report_of

HOUR_S = 3_600.0
WITHOUT_TERMS = CellLimits(base_candidates=64, max_candidates=256, latency_limit_ms=150.0)


def use(report: Report, label: str, *, of: str) -> Use:
    assert report.idle is not None
    found: list[Use] = getattr(report.idle, of)
    return next(each for each in found if each.label == label)


def test_idle_time_is_told_by_pool_and_cause_with_what_was_usable_of_it() -> None:
    report = report_of(
        [
            capacity(1, pool("cpu", units=2.0, unusable={"too_short": 0.5}), pool("a100", units=4.0)),
            capacity(2, pool("cpu", units=4.0, unusable={"too_short": 0.5}), pool("a100", units=0.0, causes={})),
        ]
    )

    assert report.idle is not None
    assert report.idle.total.idle_unit_h == pytest.approx(10 * WINDOW_S / HOUR_S)
    assert report.idle.total.usable_share == pytest.approx(0.9)
    assert report.idle.unusable == {"too_short": pytest.approx(WINDOW_S / HOUR_S)}
    assert use(report, "cpu", of="by_pool").usable_share == pytest.approx(5 / 6)
    assert use(report, "off_peak", of="by_cause").idle_unit_h == pytest.approx(10 * WINDOW_S / HOUR_S)


def test_busy_replicas_work_on_the_pools_of_their_lever() -> None:
    routes = [
        busy("wide", seconds=5.0),
        busy("powerful", seconds=2.0),
        # Dedicated work, and the routers' view of the same, are no use of idle capacity.
        busy("baseline", seconds=9.0),
        busy("wide", seconds=9.0, part="router"),
    ]
    report = report_of([capacity(1, pool("cpu", units=1.0), pool("a100", units=1.0)), latency(1, routes=routes)])

    assert use(report, "cpu", of="by_pool").used_share == pytest.approx(0.5)
    assert use(report, "a100", of="by_pool").used_share == pytest.approx(0.2)
    assert report.idle is not None
    assert report.idle.total.used_share == pytest.approx(0.35)


def test_without_terms_rma_may_use_every_pool() -> None:
    pools = pool("cpu", units=3.0), pool("a100", units=1.0)
    report = report_of([capacity(1, *pools, limits=WITHOUT_TERMS), latency(1, routes=[busy("wide", seconds=4.0)])])

    assert use(report, "cpu", of="by_pool").used_unit_h == pytest.approx(3.0 / HOUR_S)
    assert use(report, "a100", of="by_pool").used_unit_h == pytest.approx(1.0 / HOUR_S)


def test_use_by_cause_is_an_estimate_where_a_pool_has_several() -> None:
    report = report_of(
        [
            capacity(
                1,
                pool("cpu", units=4.0, causes={"off_peak": 3.0, "not_ported": 1.0}),
                pool("a100", units=1.0, causes={"ahead_of_models": 1.0}),
            ),
            latency(1, routes=[busy("wide", seconds=8.0)]),
        ]
    )

    off_peak, alone = use(report, "off_peak", of="by_cause"), use(report, "ahead_of_models", of="by_cause")
    assert off_peak.used_unit_h == pytest.approx(6.0 / HOUR_S)
    assert (off_peak.is_estimate, alone.is_estimate) == (True, False)
    assert "idle_by_cause" in {missing.row for missing in report.not_known}


def test_work_without_a_pool_to_do_it_on_is_not_known_use() -> None:
    report = report_of([capacity(1, pool("cpu")), latency(1, routes=[busy("powerful", seconds=1.0)])])

    assert report.idle is not None
    assert (report.idle.total.used_unit_h, report.headline.figures[1].is_known) == (None, False)
    assert any(missing.row == "idle" and "no usable pool" in missing.reason for missing in report.not_known)


def test_preemptions_are_counted_by_the_hour_with_their_sizes_and_ages() -> None:
    report = report_of(
        [
            capacity(1, pool(units=6.0)),
            capacity(2, pool(units=2.0, taken={0: 1.0, 300: 3.0}, num_reclaims=2)),
            capacity(3, pool(units=1.0, taken={60: 1.0}, num_silent=1)),
            capacity(4, pool(units=1.0)),
            # Nothing of it was usable: a preemption without a size.
            capacity(1, pool(units=1.0, num_reclaims=1), cell="us-west"),
        ]
    )

    found = report.preemptions
    assert found is not None
    assert (found.num_reclaims, found.num_hosts_silent, found.num_windows) == (3, 1, 2)
    # Three in forty seconds of one cell, and one in ten seconds of the other.
    assert found.per_hour == pytest.approx(3 * 90 + 360)
    assert (found.units_taken, found.largest_units) == pytest.approx((5.0, 4.0))
    assert found.units_per_hour == pytest.approx(5.0 * 90)
    assert found.median_units == pytest.approx(1.0, rel=0.01)
    assert found.median_pool_share == pytest.approx(0.5, rel=0.01)
    assert [(size.from_units, size.to_units, size.num_preemptions) for size in found.sizes] == [(0.5, 1, 1), (2, 4, 1)]
    assert [(age.from_age_s, age.units) for age in found.ages] == [(0, 1.0), (60, 1.0), (300, 3.0)]


@pytest.mark.parametrize(
    ("lacking", "need", "cores", "state"),
    [
        (0.0, 0.0, 8.0, "num_balanced"),
        (0.2, 0.0, 8.0, "num_balanced"),
        (0.3, 0.0, 8.0, "num_cpu_short"),
        (0.0, 2.0, 8.0, "num_balanced"),
        (0.0, 2.0, 7.0, "num_cpu_short"),
        (0.0, 2.0, 10.0, "num_balanced"),
        (0.0, 2.0, 10.5, "num_cpu_ample"),
    ],
)
def test_cpu_beside_accelerators(lacking: float, need: float, cores: float, state: str) -> None:
    fit = AcceleratorFit(accelerator="a100", units_per_unit_s=1.0, cpu_cores_per_unit=need)
    limits = replace(LIMITS, levers=[LeverTerms(lever="rma", fits=[fit])])
    unusable = {"missing_cpu": lacking} if lacking else {}
    # CPU alone is no accelerator, and none idle says nothing.
    report = report_of(
        [
            capacity(1, pool("cpu", cores=99.0), pool(units=4.0, unusable=unusable, cores=cores), limits=limits),
            capacity(2, pool("cpu", cores=99.0), pool(units=0.0, cores=0.0), limits=limits),
        ]
    )

    assert report.balance is not None
    assert (report.balance.num_windows, getattr(report.balance, state)) == (1, 1)
    assert report.balance.num_with_need == (1 if need else 0)


def test_spend_is_busy_time_against_what_the_budget_could_plan_with() -> None:
    report = report_of(
        [
            capacity(1, pool("cpu", units=4.0, unusable={"too_short": 1.0}), pool("a100", units=2.0)),
            latency(1, routes=[busy("wide", seconds=6.0, units_done=120_000), busy("powerful", seconds=2.0)]),
        ]
    )

    rma, sbm = report.budget
    assert (rma.lever, rma.pools, sbm.lever, sbm.pools) == ("rma", ["cpu"], "sbm", ["a100"])
    # Three usable units for ten seconds, of which half may be planned with.
    assert rma.planned_unit_h == pytest.approx(15.0 / HOUR_S)
    assert (rma.spent_share, rma.units_per_busy_s) == pytest.approx((0.4, 20_000.0))
    assert sbm.spent_share == pytest.approx(0.2)
