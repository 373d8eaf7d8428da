"""The decision of one tick: bounds, order of precedence, fast down and slow up, no jump at a change."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import CellLimits, LeverTerms
from streams.control import decide as decide_module
from streams.control.decide import Inputs
from streams.control.evidence import Evidence
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.hold import Hold
from streams.control.loop import Loop
from streams.control.pid import Memory

LIMITS = CellLimits(base_candidates=100, max_candidates=600, latency_limit_ms=100.0, rise_share=0.1)
SPAN = 500
MIN_SAMPLES = DEFAULT_GAINS.min_samples


def decide(given: Inputs, *, previous_extras: float = 0.0, **changes) -> decide_module.Decision:
    """Decision after a loop that stood at so many extras."""
    gains = changes.pop("gains", DEFAULT_GAINS)
    loop = Loop(target=given.limits.base_candidates + previous_extras, **changes)
    return decide_module.decide(given, loop=loop, gains=gains)


def inputs(**changes) -> Inputs:
    calm = {
        "limits": LIMITS,
        "usable_units": 4.0,
        "units_per_unit_s": 50_000.0,
        "planned_rate_per_s": 100.0,
        "num_routers": 1,
        "num_requests": 200,
        "num_samples": 200,
        "p99_ms": 20.0,
        "shed_share": 0.0,
    }
    return Inputs(**{**calm, **changes})


def limits(**changes) -> CellLimits:
    return msgspec.structs.replace(LIMITS, **changes)


BOUNDS = ("rise_share", "shed_allowance", "latency_limit_ms", "upstream_limit_ms")
any_float = st.floats(allow_nan=True, allow_infinity=True)


@given(
    usable_units=any_float,
    units_per_unit_s=any_float,
    planned_rate_per_s=any_float,
    shed_share=any_float,
    p99_ms=st.none() | any_float,
    previous_extras=any_float,
    num_routers=st.integers(0, 3),
    num_requests=st.integers(0, 2**62),
    num_samples=st.integers(0, 2**62),
    upstream_p99_ms=st.none() | any_float,
    num_upstream_samples=st.integers(0, 2**62),
    base=st.integers(1, 2**40),
    span=st.integers(0, 2**40),
    rise_share=st.floats(1e-9, 1.0),
    shed_allowance=st.floats(0.0, 1.0),
    latency_limit_ms=st.floats(0.0, 1e12),
    upstream_limit_ms=st.floats(0.0, 1e12),
)
def test_whatever_comes_in_the_target_stays_between_base_and_max(previous_extras, base, span, **figures):
    bounds = {name: figures.pop(name) for name in BOUNDS}
    given_limits = CellLimits(base_candidates=base, max_candidates=base + span, **bounds)
    decision = decide(inputs(limits=given_limits, **figures), previous_extras=previous_extras)
    assert 0 <= decision.extras <= span
    assert 0.0 <= decision.budget_units_s <= 1e12
    assert decision.detail
    assert math.isfinite(decision.loop.target)
    assert decision.loop.memory is None or math.isfinite(decision.loop.memory.error + decision.loop.memory.slope)


@pytest.mark.parametrize(
    "field",
    ["usable_units", "units_per_unit_s", "planned_rate_per_s", "shed_share", "p99_ms", "upstream_p99_ms"],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_an_absurd_figure_falls_to_base_at_once(field, value):
    decision = decide(inputs(**{field: value}), previous_extras=SPAN)
    assert (decision.extras, decision.budget_units_s, decision.reason) == (0, 0.0, "absurd")


@pytest.mark.parametrize(("changes", "reason"), [({"usable_units": 0.0}, "no_capacity"), ({"num_routers": 0}, "blind")])
def test_no_capacity_and_blindness_fall_to_base_in_one_tick(changes, reason):
    decision = decide(inputs(**changes), previous_extras=SPAN)
    assert (decision.extras, decision.reason) == (0, reason)


def test_the_budget_is_units_by_speed_by_utilisation_and_caps_the_target_per_request():
    # 0.5 units x 50,000/s x 0.7 = 17,500 candidates/s; at 100 requests/s 175 extras each.
    decision = decide(inputs(usable_units=0.5), previous_extras=SPAN)
    assert decision.budget_units_s == pytest.approx(17_500.0)
    assert (decision.extras, decision.reason) == (175, "capacity")


def test_a_shrinking_pool_pulls_down_in_one_tick_though_latency_is_calm():
    assert decide(inputs(usable_units=0.01), previous_extras=SPAN).extras == 3


@pytest.mark.parametrize("changes", [{"latency_limit_ms": math.nan}, {"rise_share": math.nan}, {"utilisation": -0.5}])
def test_absurd_limits_fall_to_base_and_leave_nothing_behind(changes):
    decision = decide(inputs(limits=limits(**changes)), previous_extras=SPAN)
    assert (decision.extras, decision.reason) == (0, "absurd")
    assert decision.loop == Loop()


def test_p99_above_the_setpoint_takes_extras_away_and_says_so():
    decision = decide(inputs(p99_ms=125.0), previous_extras=400)
    assert decision.extras < 400
    assert decision.reason == "latency"
    assert decision.detail.startswith("p99 125.0 ms, aim 90.0 of 100.0 ms: 400.0 to ")


def test_the_cap_is_named_when_it_is_what_binds():
    # 8,750 candidates/s for 100 requests/s: 87 extras each.
    poor = {"usable_units": 0.25}
    assert decide(inputs(**poor), previous_extras=87.5).reason == "capacity"
    assert decide(inputs(p99_ms=91.0, **poor), previous_extras=200).reason == "capacity"
    assert decide(inputs(p99_ms=91.0, **poor), previous_extras=87.5).reason != "capacity"
    assert decide(inputs(p99_ms=900.0, **poor), previous_extras=200).reason == "latency"


UPSTREAM = limits(upstream_limit_ms=200.0)


def test_upstream_time_counts_where_it_is_the_worst_and_watched():
    slow = {"limits": UPSTREAM, "upstream_p99_ms": 250.0, "num_upstream_samples": 200}
    decision = decide(inputs(**slow), previous_extras=400)
    assert decision.extras < 400
    assert decision.reason == "upstream"
    assert decision.detail.startswith("upstream p99 250.0 ms, aim 180.0 of 200.0 ms: 400.0 to ")
    assert decision.loop.upstream_tight
    worse = decide(inputs(**slow, p99_ms=900.0), previous_extras=400)
    assert (worse.reason, worse.loop.upstream_tight) == ("latency", False)
    assert decide(inputs(**{**slow, "limits": LIMITS}), previous_extras=400).reason == "rising"


@pytest.mark.parametrize(("num_samples", "reason"), [(60, "steady"), (4 * MIN_SAMPLES, "rising")])
def test_scarce_upstream_samples_hold_a_rise_while_more_of_them_may_come(num_samples, reason):
    scarce = {"limits": UPSTREAM, "upstream_p99_ms": 250.0, "num_upstream_samples": MIN_SAMPLES - 1}
    seen = Evidence(offered=7)
    decision = decide(inputs(**scarce, num_samples=num_samples), previous_extras=200, evidence=seen)
    assert decision.reason == reason
    # What was gathered is kept exactly as long as it waits.
    assert decision.loop.evidence == (seen if reason == "steady" else Evidence())


def test_an_override_of_coverage_alone_leaves_the_candidates_to_the_loop():
    hold = Hold(
        action="override", operator="ops", reason="a drill", candidate_target=None, expires_ms=None, coverage=0.1
    )
    assert decide(inputs(hold=hold), previous_extras=100).reason == "rising"


def test_units_that_were_not_allotted_are_named():
    decision = decide(inputs(usable_units=0.0, allotted=True), previous_extras=SPAN)
    assert (decision.extras, decision.reason, decision.detail) == (0, "no_capacity", "no unit allotted")


def test_levers_do_not_rule_the_loop():
    levers = limits(levers=[LeverTerms(lever="rma", fits=[])])
    first = decide(inputs(limits=levers), previous_extras=100)
    assert first.loop.limits == LIMITS
    assert "changed" not in decide_module.decide(inputs(), loop=first.loop).detail


def test_latency_far_over_the_limit_takes_everything_in_one_tick():
    decision = decide(inputs(p99_ms=900.0), previous_extras=SPAN)
    assert (decision.extras, decision.reason) == (0, "latency")


def test_sheds_beyond_the_allowance_pull_down_though_latency_is_calm():
    decision = decide(inputs(shed_share=0.505), previous_extras=400)
    # Twice what may be offered is: an error of -1, by the integral gain and the position, of the span.
    assert decision.extras == 400 - round(0.18 * 0.8 * SPAN)
    assert decision.reason == "shedding"
    assert "0.505 of the extras dropped, allowed 0.010" in decision.detail


def test_the_worse_of_latency_and_sheds_counts():
    alone = decide(inputs(shed_share=0.505), previous_extras=400)
    assert decide(inputs(p99_ms=95.0, shed_share=0.505), previous_extras=400).extras == alone.extras
    assert decide(inputs(p99_ms=400.0, shed_share=0.505), previous_extras=400).extras < alone.extras


def test_few_sheds_do_not_hinder_and_nothing_rises_at_the_allowance():
    assert decide(inputs(shed_share=0.005), previous_extras=400).reason == "rising"
    at_allowance = decide(inputs(shed_share=0.01), previous_extras=400)
    assert (at_allowance.extras, at_allowance.reason) == (400, "steady")


def test_after_sheds_nothing_rises_for_some_ticks():
    loop = decide(inputs(shed_share=0.02), previous_extras=400).loop
    made = []
    for _ in range(DEFAULT_GAINS.shed_hold_ticks):
        decision = decide_module.decide(inputs(), loop=loop)
        loop = decision.loop
        made.append(decision.extras)
    assert made[:-1] == [made[0]] * (len(made) - 1)
    assert made[-1] > made[0]


def test_it_rises_by_a_share_of_the_span_at_most():
    decision = decide(inputs(p99_ms=1.0), previous_extras=300)
    assert (decision.extras, decision.reason) == (350, "rising")


def test_steps_of_less_than_a_candidate_add_up():
    small = CellLimits(base_candidates=10, max_candidates=20, latency_limit_ms=100.0, rise_share=0.01)
    loop, made = Loop(), []
    for _ in range(400):
        decision = decide_module.decide(inputs(limits=small), loop=loop)
        loop = decision.loop
        made.append(decision.extras)
    assert made[0] == 0
    assert made[-1] == 10


def test_at_the_top_it_is_steady():
    decision = decide(inputs(), previous_extras=SPAN)
    assert (decision.extras, decision.reason) == (SPAN, "steady")


@pytest.mark.parametrize("p99_ms", [None, 20.0, 900.0])
def test_few_samples_move_nothing_and_are_kept_for_later(p99_ms):
    kept = Evidence(offered=7)
    given = inputs(num_samples=MIN_SAMPLES - 1, p99_ms=p99_ms)
    decision = decide(given, previous_extras=100.5, evidence=kept, memory=Memory(error=1.0, slope=0.0))
    assert (decision.extras, decision.reason) == (100, "steady")
    assert decision.loop.target == 200.5
    assert decision.loop.evidence == kept
    assert decide(inputs(num_samples=MIN_SAMPLES), previous_extras=100.5, evidence=kept).loop.evidence == Evidence()


def test_few_samples_do_not_keep_what_the_pool_cannot_pay_for():
    decision = decide(inputs(num_samples=1, usable_units=0.01), previous_extras=100)
    assert (decision.extras, decision.reason) == (3, "capacity")
    assert decide(inputs(), previous_extras=decision.loop.target - 100).extras <= 3 + 50


@pytest.mark.parametrize("rate", [0.0, 5e-324])
def test_no_request_holds_and_divides_by_nothing(rate):
    decision = decide(inputs(planned_rate_per_s=rate, num_requests=0, num_samples=0, p99_ms=None), previous_extras=120)
    assert (decision.extras, decision.reason) == (120, "steady")


def test_a_freeze_holds_against_latency_and_budget():
    hold = Hold(action="freeze", operator="ops", reason="a drill", candidate_target=None, expires_ms=None)
    decision = decide(inputs(hold=hold, p99_ms=900.0, usable_units=0.01), previous_extras=120)
    assert (decision.extras, decision.reason) == (120, "operator")
    assert "a drill" in decision.detail


@pytest.mark.parametrize(("asked", "extras"), [(50, 0), (250, 150), (9_999, SPAN)])
def test_an_override_is_kept_within_the_limits(asked, extras):
    hold = Hold(action="override", operator="ops", reason="a drill", candidate_target=asked, expires_ms=None)
    assert decide(inputs(hold=hold), previous_extras=0).extras == extras


@pytest.mark.parametrize("changes", [{"usable_units": 0.0}, {"num_routers": 0}, {"p99_ms": math.nan}])
def test_no_operator_stands_above_what_makes_extras_impossible(changes):
    hold = Hold(action="override", operator="ops", reason="a drill", candidate_target=600, expires_ms=None)
    assert decide(inputs(hold=hold, **changes), previous_extras=SPAN).extras == 0


MOVING = Loop(target=400.0, memory=Memory(error=0.2, slope=0.1), cause="latency", limits=LIMITS, gains=DEFAULT_GAINS)


@pytest.mark.parametrize("p99_ms", [1.0, 60.0, 120.0, 2_000.0])
@pytest.mark.parametrize(
    ("changes", "gains"),
    [
        ({}, Gains(integral=1.0, rise_integral=1.0, proportional=1.0, derivative=1.0)),
        ({}, Gains(setpoint_share=0.4)),
        ({"latency_limit_ms": 50.0}, DEFAULT_GAINS),
        ({"latency_limit_ms": 500.0}, DEFAULT_GAINS),
        ({"max_candidates": 2_000, "rise_share": 1.0}, DEFAULT_GAINS),
        ({"base_candidates": 50}, DEFAULT_GAINS),
    ],
)
def test_a_change_of_gains_or_limits_moves_the_target_by_a_hundredth_of_the_span_at_most(p99_ms, changes, gains):
    new = limits(**changes)
    decision = decide_module.decide(inputs(limits=new, p99_ms=p99_ms), loop=MOVING, gains=gains)
    span = new.max_candidates - new.base_candidates
    assert abs(new.base_candidates + decision.extras - 400) <= 0.01 * span
    assert decision.loop.gains == gains


@pytest.mark.parametrize("p99_ms", [1.0, 2_000.0])
def test_the_end_of_a_hold_moves_the_target_by_a_hundredth_of_the_span_at_most(p99_ms):
    hold = Hold(action="override", operator="ops", reason="a drill", candidate_target=400, expires_ms=None)
    held = decide(inputs(hold=hold, p99_ms=p99_ms), previous_extras=120)
    assert held.extras == 300
    first = decide_module.decide(inputs(p99_ms=p99_ms), loop=held.loop)
    assert abs(first.extras - 300) <= 5
    second = decide_module.decide(inputs(p99_ms=p99_ms), loop=first.loop)
    assert abs(second.extras - first.extras) > 5


def test_limits_below_the_target_are_kept_at_once_all_the_same():
    decision = decide_module.decide(inputs(limits=limits(max_candidates=200)), loop=MOVING)
    assert decision.extras == 100


def test_another_cause_of_the_error_is_no_kick():
    calm = decide(inputs(), previous_extras=250).loop
    decision = decide_module.decide(inputs(shed_share=0.02), loop=calm)
    assert "P -0.0" in decision.detail or "P +0.0" in decision.detail


def test_whoever_fell_begins_anew():
    fallen = decide(inputs(usable_units=0.0), previous_extras=300, memory=Memory(error=-20.0, slope=9.0), held=True)
    assert fallen.loop == Loop()
