"""Guardrails: what is surely crossed takes the lever back, for longer each time; chance and the other lever do not."""

import msgspec
import numpy as np
import pytest

from schemas.histogram import ExponentialHistogram
from schemas.records import ArmGuard, CellLimits, HistogramFields
from schemas.records.measurement import ARMS
from streams.control.uplift.guard_sums import with_guards
from streams.control.uplift.guardrails import (
    HOLD_COHORTS,
    MOST_DOUBLINGS,
    GuardrailSettings,
    Judged,
    after_judgement,
    judged,
    levers_at_base,
    owed_floors,
)
from streams.control.uplift.layout import column, empty, packed_faded
from streams.control.uplift.state import ALL, Crossing, MeasurementState, SegmentSums
from tests.measured_world import guard_of

LIMITS = CellLimits(base_candidates=64, max_candidates=564, latency_limit_ms=50.0)
DEFAULTS = GuardrailSettings()
NUM = {"holdout": 1_000, "none": 1_000, "rma": 9_000, "sbm": 9_000, "both": 81_000}


def _guard(arm, *, latencies_ms=None, **counts) -> ArmGuard:
    if latencies_ms is None:
        return guard_of("games", arm, num_requests=NUM[arm], **counts)
    latency = ExponentialHistogram()
    latency.record_many(latencies_ms)
    made = guard_of("games", arm, num_requests=len(latencies_ms), **counts)
    return msgspec.structs.replace(made, latency=HistogramFields(**latency.to_fields()))


def _said(found: Judged) -> dict[tuple[str, str], bool]:
    return {(each.lever, each.name): each.is_crossed for each in found.guardrails}


def _slow(rng: np.random.Generator, num: int, *, p99_ms: float):
    # Log-normal with sigma 0.5: its p99 is exp(1.163) times its median.
    return rng.lognormal(np.log(p99_ms) - 1.1632, 0.5, num)


def test_a_lever_that_makes_requests_slow_is_blamed_and_the_other_is_not():
    rng = np.random.default_rng(1)
    guards = [
        _guard(arm, latencies_ms=_slow(rng, NUM[arm] // 4, p99_ms=120.0 if arm in ("sbm", "both") else 30.0))
        for arm in ARMS
    ]
    found = judged((), guards, cohort=10, limits=LIMITS)
    assert _said(found)["sbm", "latency_p99"]
    assert not _said(found)["rma", "latency_p99"]
    (crossing,) = found.crossings
    assert (crossing.lever, crossing.until_cohort, crossing.num_times) == ("sbm", 10 + HOLD_COHORTS, 1)
    figure = next(each for each in found.guardrails if each.is_crossed)
    assert DEFAULTS.latency_ratio < figure.figure < 4.0
    assert "p99" in figure.detail


def test_what_is_within_the_cells_limit_is_no_harm_however_quick_others_are():
    rng = np.random.default_rng(2)
    guards = [
        _guard(arm, latencies_ms=_slow(rng, NUM[arm] // 4, p99_ms=40.0 if arm in ("sbm", "both") else 5.0))
        for arm in ARMS
    ]
    assert not any(_said(judged((), guards, cohort=10, limits=LIMITS)).values())


def test_chance_crosses_next_to_nothing():
    rng = np.random.default_rng(3)
    crossed = 0
    for _ in range(100):
        # Equal arms beyond the limit of the cell, with few requests: the ratio of their p99 is far from 1 at times.
        guards = [_guard(arm, latencies_ms=_slow(rng, 600, p99_ms=60.0)) for arm in ("none", "rma", "sbm", "both")]
        crossed += sum(_said(judged((), guards, cohort=1, limits=LIMITS)).values())
    assert crossed <= 2


def test_failures_beyond_those_without_the_lever_cross():
    guards = [_guard(arm, num_errors=NUM[arm] // (25 if arm in ("rma", "both") else 1_000)) for arm in ARMS]
    said = _said(judged((), guards, cohort=1, limits=LIMITS))
    assert said["rma", "failures"]
    assert not said["sbm", "failures"]
    # Failing alike is no lever's fault.
    alike = [_guard(arm, num_late=NUM[arm] // 25) for arm in ARMS]
    assert not any(_said(judged((), alike, cohort=1, limits=LIMITS)).values())


def test_work_that_is_mostly_shed_is_assigned_no_longer():
    guards = [_guard("sbm", num_items=1_000, num_items_shed=600), _guard("rma", num_items=1_000, num_items_shed=400)]
    said = _said(judged((), guards, cohort=1, limits=LIMITS))
    assert said["sbm", "shed"]
    assert not said["rma", "shed"]


def test_of_little_nothing_is_said():
    guards = [guard_of("games", arm, num_requests=40, num_errors=20) for arm in ARMS]
    assert judged((), guards, cohort=1, limits=LIMITS) == Judged(crossings=(), guardrails=())


SHED = (_guard("sbm", num_items=1_000, num_items_shed=900),)
FINE = (_guard("sbm", num_items=1_000, num_items_shed=10),)
SO_SO = (_guard("sbm", num_items=1_000, num_items_shed=480),)


def test_a_lever_is_held_at_base_then_tried_and_held_for_twice_as_long_each_time():
    crossings: tuple[Crossing, ...] = ()
    cohort, held = 0, []
    for _ in range(MOST_DOUBLINGS + 3):
        found = judged(crossings, SHED, cohort=cohort, limits=LIMITS)
        (crossing,) = found.crossings
        held.append(crossing.until_cohort - cohort)
        # At base nothing is seen of it, and it stays there.
        quiet = judged(found.crossings, (), cohort=crossing.until_cohort - 1, limits=LIMITS)
        assert _said(quiet) == {("sbm", "shed"): True}
        crossings, cohort = quiet.crossings, crossing.until_cohort
        assert not any(_said(judged(crossings, FINE, cohort=cohort, limits=LIMITS)).values())
    assert held == [HOLD_COHORTS * 2 ** min(times, MOST_DOUBLINGS) for times in range(MOST_DOUBLINGS + 3)]


def test_what_has_stayed_clear_is_forgotten_and_what_is_near_its_limit_is_not():
    (crossing,) = judged((), SHED, cohort=0, limits=LIMITS).crossings
    free = crossing.until_cohort
    assert judged((crossing,), FINE, cohort=free, limits=LIMITS).crossings == (crossing,)
    assert judged((crossing,), SO_SO, cohort=free + HOLD_COHORTS, limits=LIMITS).crossings == (crossing,)
    assert judged((crossing,), FINE, cohort=free + HOLD_COHORTS, limits=LIMITS).crossings == ()


def test_a_segment_is_judged_once_a_cohort_and_by_whole_cohorts_alone():
    sums = with_guards(SegmentSums(segment="games"), SHED, cohort=7)
    # The cohort has not ended: nothing to be judged by.
    assert levers_at_base(after_judgement(sums, limits=LIMITS, settings=DEFAULTS)) == ()
    later = after_judgement(with_guards(sums, FINE, cohort=8), limits=LIMITS, settings=DEFAULTS)
    assert levers_at_base(later) == ("sbm",)
    assert after_judgement(later, limits=LIMITS, settings=DEFAULTS) is later


def _served(segment: str, *, assigned: int, ranked: int) -> SegmentSums:
    sums_BK = empty()
    sums_BK[:, column("arm both", "num_upgrades_assigned")] = assigned
    sums_BK[:, column("arm both", "num_upgrades_ranked")] = ranked
    return SegmentSums(segment=segment, steering=packed_faded(sums_BK.astype(np.float64)))


def test_every_segment_is_owed_its_part_of_what_is_served():
    state = MeasurementState(
        segments={
            ALL: _served(ALL, assigned=100, ranked=80),
            "dropped": _served("dropped", assigned=100, ranked=40),
            "served": _served("served", assigned=100, ranked=90),
            "new": SegmentSums(segment="new"),
        }
    )
    assert owed_floors(state, fair_share=0.0) == {}
    # Half of what is assigned to it is dropped, a fifth of all: twice as much must be assigned.
    assert owed_floors(state, fair_share=0.3) == {"dropped": pytest.approx(0.6), "new": 0.3, "served": 0.3}
    assert owed_floors(state, fair_share=0.8)["dropped"] == 1.0


@pytest.mark.parametrize(
    "wrong", [{"latency_ratio": 0.9}, {"failure_share": 0.0}, {"shed_share": 1.0}, {"fair_share": float("nan")}]
)
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GuardrailSettings(**wrong)
