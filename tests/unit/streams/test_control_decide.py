"""The rule of one tick: bounds, order of precedence, fast down and slow up."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import CellLimits
from streams.control.decide import MIN_LATENCY_SAMPLES, Inputs, decide
from streams.control.state import Hold

LIMITS = CellLimits(base_candidates=100, max_candidates=600, latency_limit_ms=100.0, rise_share=0.1)
SPAN = 500


def inputs(**changes) -> Inputs:
    calm = {
        "limits": LIMITS,
        "usable_units": 4.0,
        "units_per_unit_s": 50_000.0,
        "planned_rate_per_s": 100.0,
        "num_routers": 1,
        "num_requests": 200,
        "num_samples": 200,
        "p99_ms": 40.0,
        "shed_share": 0.0,
    }
    return Inputs(**{**calm, **changes})


def limits(**changes) -> CellLimits:
    return msgspec.structs.replace(LIMITS, **changes)


any_float = st.floats(allow_nan=True, allow_infinity=True)


@given(
    usable_units=any_float,
    units_per_unit_s=any_float,
    planned_rate_per_s=any_float,
    shed_share=any_float,
    p99_ms=st.none() | any_float,
    previous_extras=st.integers(-(2**62), 2**62),
    num_routers=st.integers(0, 3),
    num_requests=st.integers(0, 2**62),
    num_samples=st.integers(0, 2**62),
    base=st.integers(1, 2**40),
    span=st.integers(0, 2**40),
    rise_share=st.floats(1e-9, 1.0),
    shed_allowance=st.floats(0.0, 1.0),
    latency_limit_ms=st.floats(0.0, 1e12),
)
def test_whatever_comes_in_the_target_stays_between_base_and_max(previous_extras, base, span, **figures):
    bounds = {name: figures.pop(name) for name in ("rise_share", "shed_allowance", "latency_limit_ms")}
    given_limits = CellLimits(base_candidates=base, max_candidates=base + span, **bounds)
    decision = decide(inputs(limits=given_limits, **figures), previous_extras=previous_extras)
    assert 0 <= decision.extras <= span
    assert 0.0 <= decision.budget_units_s <= 1e12
    assert decision.detail


@pytest.mark.parametrize("field", ["usable_units", "units_per_unit_s", "planned_rate_per_s", "shed_share", "p99_ms"])
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


def test_latency_over_the_limit_shrinks_extras_in_proportion_at_once():
    decision = decide(inputs(p99_ms=125.0), previous_extras=400)
    assert (decision.extras, decision.reason) == (320, "latency")


def test_latency_far_over_the_limit_falls_to_base():
    assert decide(inputs(p99_ms=200.0), previous_extras=400).extras == 0


def test_one_extra_is_taken_away_too():
    assert decide(inputs(p99_ms=101.0), previous_extras=1).extras == 0
    assert decide(inputs(shed_share=0.02), previous_extras=1).extras == 0


def test_sheds_above_the_allowance_shrink_to_what_was_ranked_and_keep_from_rising():
    decision = decide(inputs(shed_share=0.505), previous_extras=400)
    assert (decision.extras, decision.reason) == (200, "shedding")


def test_sheds_within_the_allowance_do_not_hinder():
    assert decide(inputs(shed_share=0.01), previous_extras=400).reason == "rising"


def test_the_harder_pull_counts():
    decision = decide(inputs(p99_ms=125.0, shed_share=0.505), previous_extras=400)
    assert (decision.extras, decision.reason) == (200, "shedding")


def test_it_rises_by_a_share_of_the_span_and_no_more():
    decision = decide(inputs(), previous_extras=100)
    assert (decision.extras, decision.reason) == (150, "rising")


def test_it_leaves_base_by_one_even_if_the_share_is_less_than_a_candidate():
    assert decide(inputs(limits=limits(rise_share=0.000_1)), previous_extras=0).extras == 1


def test_at_the_top_it_is_steady():
    decision = decide(inputs(), previous_extras=SPAN)
    assert (decision.extras, decision.reason) == (SPAN, "steady")


@pytest.mark.parametrize("changes", [{"num_samples": MIN_LATENCY_SAMPLES - 1}, {"p99_ms": None}, {"p99_ms": 95.0}])
def test_few_samples_and_latency_near_the_limit_hold(changes):
    decision = decide(inputs(**changes), previous_extras=100)
    assert (decision.extras, decision.reason) == (100, "steady")


def test_few_samples_do_not_pull_down_either():
    assert decide(inputs(num_samples=5, p99_ms=900.0), previous_extras=100).extras == 100


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
