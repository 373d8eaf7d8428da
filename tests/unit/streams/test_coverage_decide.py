"""One tick's coverage: whose word counts, what is held, and that no input whatever leads to more than may be."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import CandidateTarget, CellLimits, SegmentTraffic
from schemas.segments import OTHER_SEGMENT
from streams.control.coverage.decide_coverage import CoverageDecision, decide_coverage
from streams.control.coverage.inputs import CoverageInputs
from streams.control.coverage.loop import CoverageLoop
from streams.control.coverage.steer import PROBE_SHARE, RETRY_TICKS
from streams.control.evidence import Evidence
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.hold import Hold
from streams.control.pid import Memory
from tests.unit.streams.control_makers import histogram

LIMITS = CellLimits(
    base_candidates=100,
    max_candidates=600,
    latency_limit_ms=150.0,
    powerful_limit_ms=200.0,
    max_coverage=0.5,
    exploration_share=0.05,
)
# 100 requests/s at 1,000 units: 40,000 units/s pay for 0.4.
PAID = 40_000.0 / 50_000.0 / 0.7


def inputs(**changes: Any) -> CoverageInputs:
    fields: dict[str, Any] = {
        "limits": LIMITS,
        "usable_units": PAID,
        "units_per_unit_s": 50_000.0,
        "units_per_upgrade": 1_000.0,
        "planned_rate_per_s": 100.0,
        "num_routers": 2,
        "num_requests": 1_000,
        "segments": (
            SegmentTraffic(segment="a", num_requests=600, num_allowed=540),
            SegmentTraffic(segment="b", num_requests=400, num_allowed=360),
        ),
        "powerful_p99_ms": 40.0,
        "num_samples": 300,
        "shed_share": 0.0,
    }
    return CoverageInputs(**fields | changes)


def at(coverage: float, **changes: Any) -> CoverageLoop:
    """A loop that rests at a coverage, its limits and gains known to it."""
    return CoverageLoop(coverage=coverage, limits=LIMITS, gains=DEFAULT_GAINS, **changes)


def hold(action: Any, coverage: float | None = None, candidate_target: int | None = None) -> Hold:
    return Hold(
        action=action,
        operator="ops",
        reason="a drill",
        candidate_target=candidate_target,
        expires_ms=None,
        coverage=coverage,
    )


def limits_with(**changes: Any) -> CellLimits:
    return msgspec.structs.replace(LIMITS, **changes)


def total(decision: CoverageDecision, weights: dict[str, float], allowed: float) -> float:
    shares = {listed.segment: listed.share for listed in decision.segment_shares}
    return sum(weight * allowed * shares[segment] for segment, weight in weights.items())


def test_without_sbm_there_is_nothing_to_say():
    decision = decide_coverage(inputs(limits=limits_with(max_coverage=0.0)), loop=at(0.3))
    assert (decision.coverage, decision.segment_shares, decision.other_share) == (0.0, (), 0.0)
    assert (decision.budget_units_s, decision.reason, decision.detail) == (0.0, "", "")
    assert decision.loop == CoverageLoop()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"usable_units": 0.0}, "no_capacity"),
        ({"units_per_upgrade": 0.0}, "no_capacity"),
        ({"num_routers": 0}, "blind"),
        ({"powerful_p99_ms": math.nan}, "absurd"),
        ({"usable_units": math.nan}, "absurd"),
        ({"units_per_unit_s": -1.0}, "absurd"),
        ({"planned_rate_per_s": math.inf}, "absurd"),
        ({"units_per_upgrade": math.nan}, "absurd"),
        ({"shed_share": math.nan}, "absurd"),
        ({"num_offered": 2**62}, "absurd"),
        ({"segments": (SegmentTraffic(segment="a", num_requests=-1),)}, "absurd"),
    ],
)
def test_what_makes_upgrades_impossible_or_blind_ends_them_at_once(changes, reason):
    loop = at(0.4, evidence=Evidence(latency=histogram([1.0])), correction=1.4, proven=0.4)
    for held in (None, hold("override", 0.5)):
        decision = decide_coverage(inputs(hold=held, **changes), loop=loop)
        assert (decision.coverage, decision.segment_shares, decision.other_share) == (0.0, (), 0.0)
        assert (decision.reason, decision.budget_units_s) == (reason, 0.0)
        assert (decision.loop.coverage, decision.loop.correction, decision.loop.evidence) == (0.0, 1.0, Evidence())


def test_the_budget_caps_it_in_one_tick_and_the_shares_sum_up_to_it():
    decision = decide_coverage(inputs(), loop=at(0.5))
    assert (decision.coverage, decision.reason) == (0.4, "capacity")
    assert "pay for 40000 work units/s, 0.4000 of 100.0 requests/s" in decision.detail
    assert decision.budget_units_s == pytest.approx(40_000.0)
    assert total(decision, {"a": 0.6, "b": 0.4}, 0.9) == pytest.approx(0.4, abs=1e-5)


def test_nobody_whose_arm_forbids_it_is_counted_on():
    few = tuple(SegmentTraffic(segment=name, num_requests=500, num_allowed=100) for name in ("a", "b"))
    decision = decide_coverage(inputs(segments=few), loop=at(0.4))
    assert decision.reason == "arms"
    assert decision.coverage == pytest.approx(0.2)
    assert [listed.share for listed in decision.segment_shares] == [1.0, 1.0]


def test_it_rises_by_bounded_steps_and_falls_as_fast_as_it_is_wrong():
    rising = decide_coverage(inputs(powerful_p99_ms=1.0), loop=at(0.3))
    assert rising.reason == "rising"
    assert 0.3 < rising.coverage <= 0.3 + LIMITS.rise_share * LIMITS.max_coverage
    falling = decide_coverage(inputs(powerful_p99_ms=5_000.0), loop=at(0.4))
    assert (falling.coverage, falling.reason) == (0.0, "latency")
    shedding = decide_coverage(inputs(shed_share=0.4), loop=at(0.4))
    assert shedding.reason == "shedding"
    assert shedding.coverage < 0.38
    assert decide_coverage(inputs(shed_share=0.0), loop=shedding.loop).coverage == shedding.coverage


def test_the_powerful_route_has_a_limit_of_its_own():
    assert decide_coverage(inputs(powerful_p99_ms=160.0), loop=at(0.3)).reason == "rising"
    without = limits_with(powerful_limit_ms=0.0)
    loop = msgspec.structs.replace(at(0.3), limits=without)
    assert decide_coverage(inputs(powerful_p99_ms=160.0, limits=without), loop=loop).reason == "latency"


@pytest.mark.parametrize(
    "silent", [{"num_samples": 49}, {"powerful_p99_ms": None, "num_samples": 0}, {"num_requests": 0, "segments": ()}]
)
def test_too_few_samples_hold_it_and_keep_the_evidence(silent):
    loop = at(0.3, evidence=Evidence(latency=histogram([5.0])))
    decision = decide_coverage(inputs(**silent), loop=loop)
    assert (decision.coverage, decision.reason) == (0.3, "steady")
    assert decision.loop.evidence == loop.evidence
    # What the pool no longer pays for goes all the same.
    poor = decide_coverage(inputs(usable_units=PAID / 8.0, **silent), loop=loop)
    assert (poor.coverage, poor.reason) == (0.05, "capacity")
    assert decide_coverage(inputs(), loop=loop).loop.evidence == Evidence()


def test_a_route_that_nobody_uses_is_tried_by_few_and_then_waited_for():
    nothing = {"powerful_p99_ms": None, "num_samples": 0}
    first = decide_coverage(inputs(**nothing), loop=CoverageLoop())
    assert (first.coverage, first.reason) == (PROBE_SHARE * LIMITS.max_coverage, "probing")
    assert decide_coverage(inputs(**nothing), loop=first.loop).coverage == first.coverage
    # Fifty requests a tick need more of them to be known within twenty ticks.
    small = decide_coverage(inputs(num_requests=50, planned_rate_per_s=5.0, **nothing), loop=CoverageLoop())
    assert small.coverage == pytest.approx(LIMITS.rise_share * LIMITS.max_coverage)


def test_a_route_that_fails_again_and_again_is_tried_ever_more_seldom():
    loop, waits, waited = CoverageLoop(), [], 0
    for _ in range(400):
        fails = {"powerful_p99_ms": 9_000.0} if loop.coverage > 0.0 else {"powerful_p99_ms": None, "num_samples": 0}
        decision = decide_coverage(inputs(**fails), loop=loop)
        loop = decision.loop
        assert decision.coverage <= PROBE_SHARE * LIMITS.max_coverage
        if decision.coverage > 0.0:
            waits.append(waited)
        waited = 0 if decision.coverage > 0.0 else waited + 1
    assert waits[:6] == [0, 2, 4, 8, 16, 32]
    assert set(waits[7:]) == {RETRY_TICKS}


def test_a_route_that_worked_in_between_is_tried_again_soon():
    failed = at(0.01, num_failures=5)
    assert decide_coverage(inputs(powerful_p99_ms=9_000.0), loop=failed).loop.retry_ticks == 64
    worked = decide_coverage(inputs(), loop=failed).loop
    assert worked.coverage > 0.0
    assert decide_coverage(inputs(powerful_p99_ms=9_000.0), loop=worked).loop.retry_ticks == 2


def test_what_was_borne_before_is_returned_to_without_waiting():
    nothing = {"powerful_p99_ms": None, "num_samples": 3}
    loop = decide_coverage(inputs(usable_units=0.0), loop=at(0.3, proven=0.3)).loop
    series = []
    for _ in range(8):
        decision = decide_coverage(inputs(**nothing), loop=loop)
        loop = decision.loop
        series.append(decision.coverage)
    assert series == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.3, 0.3])
    # Measured as too much there, it is no longer counted on.
    assert decide_coverage(inputs(powerful_p99_ms=250.0), loop=loop).loop.proven < 0.3


def test_no_fall_for_want_of_capacity_or_sight_forgets_the_route_or_its_failures():
    loop = at(0.3, proven=0.3, room=1.0, num_failures=3, retry_ticks=5)
    for change in ({"usable_units": 0.0}, {"num_routers": 0}, {"shed_share": math.nan}):
        fallen = decide_coverage(inputs(**change), loop=loop).loop
        assert (fallen.proven, fallen.room, fallen.num_failures, fallen.retry_ticks) == (0.3, 1.0, 3, 4)
        # What was borne under other limits is not known to be borne under these.
        anew = limits_with(powerful_limit_ms=100.0)
        assert decide_coverage(inputs(limits=anew), loop=fallen).loop.proven == 0.0


def test_what_still_comes_of_a_route_that_was_left_is_not_held_against_it():
    left = at(0.0, evidence=Evidence(latency=histogram([9_000.0] * 60), offered=60, dropped=60), num_failures=1)
    decision = decide_coverage(inputs(powerful_p99_ms=9_000.0, shed_share=1.0), loop=left)
    assert (decision.reason, decision.loop.num_failures, decision.loop.evidence) == ("probing", 1, Evidence())


def test_a_route_with_little_room_rises_by_larger_steps_and_one_beyond_measure_does_not():
    def rise(p99_ms: float, room: float, num_windows: int = 1) -> float:
        seen = {"powerful_p99_ms": p99_ms, "num_windows": num_windows, "usable_units": 10.0 * PAID}
        return decide_coverage(inputs(**seen), loop=at(0.1, room=room)).coverage - 0.1

    assert rise(120.0, 0.5) == pytest.approx(3.0 * rise(120.0, 4.0))
    assert rise(120.0, 0.5, 4) > rise(120.0, 0.5)
    # Close to its rest the windows do not count, nor do they where it may be anywhere.
    assert rise(160.0, 0.5, 4) == rise(160.0, 0.5)
    assert rise(30.0, 4.0, 4) == rise(30.0, 4.0)


def test_an_operators_word_holds_it_within_the_limits():
    frozen = decide_coverage(inputs(hold=hold("freeze"), powerful_p99_ms=5_000.0), loop=at(0.3))
    assert (frozen.coverage, frozen.reason, frozen.detail) == (0.3, "operator", "freeze by ops: a drill")
    assert decide_coverage(inputs(hold=hold("override", 0.9)), loop=at(0.3)).coverage == 0.5
    assert decide_coverage(inputs(hold=hold("override", 0.0)), loop=at(0.3)).coverage == 0.0
    # An override of the candidates says nothing of the coverage.
    assert decide_coverage(inputs(hold=hold("override", None, 200)), loop=at(0.3)).reason != "operator"
    overridden = decide_coverage(inputs(hold=hold("override", 0.2)), loop=at(0.3))
    assert total(overridden, {"a": 0.6, "b": 0.4}, 0.9) == pytest.approx(0.2, abs=1e-5)


@pytest.mark.parametrize("p99_ms", [1.0, 180.0, 9_000.0])
@pytest.mark.parametrize("samples", [0, 300])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"hold": hold("override", 0.1)}, {}),
        ({"hold": hold("override", 0.0)}, {}),
        ({"hold": hold("freeze")}, {}),
        ({}, {"limits": limits_with(powerful_limit_ms=50.0)}),
        ({}, {"limits": limits_with(rise_share=0.2)}),
        ({}, {"gains": Gains(setpoint_share=0.5)}),
    ],
)
def test_no_change_of_ruler_limits_or_gains_is_a_jump(before, after, samples, p99_ms):
    seen = {"powerful_p99_ms": p99_ms, "num_samples": samples}
    loop = decide_coverage(inputs(powerful_p99_ms=170.0, **before), loop=at(0.3, proven=0.4)).loop
    gains = after.get("gains", DEFAULT_GAINS)
    changed = {name: value for name, value in after.items() if name != "gains"}
    moved = decide_coverage(inputs(**seen, **changed), loop=loop, gains=gains)
    assert abs(moved.coverage - loop.coverage) <= 0.01 * LIMITS.max_coverage


def test_what_was_remembered_under_other_limits_is_void():
    loop = at(0.3, memory=Memory(error=-5.0, slope=2.0), cause="latency")
    assert "P +0.0000" not in decide_coverage(inputs(), loop=loop).detail
    changed = decide_coverage(inputs(limits=limits_with(shed_allowance=0.02)), loop=loop)
    assert "P +0.0000" in changed.detail
    assert "D +0.0000" in changed.detail
    assert changed.loop.memory is not None
    assert changed.loop.memory.slope == 0.0


def test_a_new_segment_has_the_share_of_all_not_listed():
    decision = decide_coverage(inputs(), loop=at(0.36))
    assert decision.other_share == pytest.approx(decision.coverage / 0.9, abs=1e-4)
    assert OTHER_SEGMENT not in {listed.segment for listed in decision.segment_shares}


def test_a_decision_fits_its_record_and_the_loop_its_bytes():
    decision = decide_coverage(inputs(estimates={"a": 1.0, "b": math.nan}), loop=at(0.3))
    data = msgspec.msgpack.encode(decision.loop)
    assert msgspec.msgpack.decode(data, type=CoverageLoop) == decision.loop
    msgspec.convert(decision.coverage, CandidateTarget.__annotations__["coverage"])


WILD = st.floats(allow_nan=True, allow_infinity=True)
COUNTS = st.integers(0, 2**62)


@settings(max_examples=500)
@given(
    figures=st.fixed_dictionaries(
        {},
        optional={
            "usable_units": WILD,
            "units_per_unit_s": WILD,
            "units_per_upgrade": WILD | st.sampled_from([5e-324, 1e-12]),
            "planned_rate_per_s": WILD | st.sampled_from([5e-324, 0.0]),
            "num_routers": st.integers(-1, 2),
            "num_requests": st.integers(-1, 2**62),
            "powerful_p99_ms": st.none() | WILD,
            "num_samples": COUNTS,
            "shed_share": WILD,
            "estimates": st.dictionaries(st.sampled_from("abc"), WILD),
            "hold": st.builds(hold, st.sampled_from(["freeze", "override"]), st.none() | WILD),
            "segments": st.lists(
                st.builds(
                    SegmentTraffic, segment=st.sampled_from("abc"), num_requests=COUNTS, num_allowed=COUNTS,
                    probability_micro=COUNTS,
                ),
                max_size=3, unique_by=lambda found: found.segment,
            ).map(tuple),
        },
    ),
    limits=st.fixed_dictionaries(
        {},
        optional={
            name: WILD | st.floats(0.0, 1.0)
            for name in ("max_coverage", "exploration_share", "utilisation", "shed_allowance", "powerful_limit_ms")
        },
    ),
    coverage=st.floats(0.0, 1.0),
)  # fmt: skip
def test_whatever_comes_it_stays_within_its_bounds(figures, limits, coverage):
    loop = at(coverage, proven=coverage)
    wanted = inputs(limits=limits_with(**limits), **figures)
    for _ in range(3):
        decision = decide_coverage(wanted, loop=loop)
        most = wanted.limits.max_coverage
        assert 0.0 <= decision.coverage <= (most if most >= 0.0 else 0.0)
        assert all(0.0 <= listed.share <= 1.0 for listed in decision.segment_shares)
        assert 0.0 <= decision.other_share <= 1.0
        assert 0.0 <= decision.budget_units_s <= 1e12
        loop = msgspec.msgpack.decode(msgspec.msgpack.encode(decision.loop), type=CoverageLoop, strict=True)
