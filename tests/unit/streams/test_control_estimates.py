"""Smoothed measurements: speed per busy second, restated when the mix of units changes; what an upgrade costs."""

import pytest

from streams.control import estimates
from streams.control.estimates import PRIOR_BUSY_S, Estimates, Speed
from streams.control.facts import LatencyFacts, PowerfulFacts
from tests.unit.streams.control_makers import histogram


def test_a_pool_never_used_stands_at_its_curve_and_a_busy_one_at_its_measurement():
    assert estimates.units_per_unit_s(Speed(), curve_units_per_unit_s=50_000.0) == 50_000.0
    busy = Speed(units_done=1e6, busy_s=100.0)
    assert estimates.units_per_unit_s(busy, curve_units_per_unit_s=50_000.0) == pytest.approx(10_000.0, rel=0.01)


def test_a_new_mix_is_planned_at_its_own_curve_times_what_was_measured_of_the_old_one():
    # Half as fast as its curve of 40,000 says; a mix with a curve of 10,000 is then taken to do 5,000.
    measured = Speed(units_done=2e6, busy_s=100.0, curve_units_per_unit_s=40_000.0)
    assert estimates.units_per_unit_s(measured, curve_units_per_unit_s=40_000.0) == pytest.approx(20_000.0, rel=0.01)
    restated = estimates.in_terms_of(measured, curve_units_per_unit_s=10_000.0)
    assert estimates.units_per_unit_s(restated, curve_units_per_unit_s=10_000.0) == pytest.approx(5_000.0, rel=0.01)
    back = estimates.in_terms_of(restated, curve_units_per_unit_s=40_000.0)
    assert back.busy_s == pytest.approx(measured.busy_s)


def test_a_mix_that_is_not_known_or_the_same_restates_nothing():
    speed = Speed(units_done=5.0, busy_s=3.0, curve_units_per_unit_s=7.0)
    assert estimates.in_terms_of(speed, curve_units_per_unit_s=0.0) is speed
    assert estimates.in_terms_of(speed, curve_units_per_unit_s=7.0) is speed
    # What was measured before anything was known of the mix is taken for measured in today's.
    assert estimates.in_terms_of(Speed(units_done=5.0, busy_s=3.0), curve_units_per_unit_s=7.0) == speed


def test_an_upgrade_costs_what_the_limits_say_until_it_was_measured():
    def cost(held: Estimates, curve: float) -> float:
        return estimates.units_per_upgrade(held, curve_units_per_unit_s=20_000.0, curve_units_per_upgrade=curve)

    assert cost(Estimates(), 400.0) == pytest.approx(400.0)
    assert cost(Estimates(), 0.0) == 0.0
    measured = Estimates(powerful=Speed(units_done=100_000.0, busy_s=10.0), num_upgrades=1_000.0)
    assert cost(measured, 400.0) == pytest.approx(100.0, rel=0.02)
    assert cost(measured, 0.0) == pytest.approx(100.0)


@pytest.mark.parametrize("unit", [1.0, 0.16])
def test_upgrades_per_busy_second_come_out_right_whatever_unit_the_replicas_count_in(unit):
    # The curve says 20,000 units a second and 400 an upgrade: 50 upgrades a second, and that is what is measured.
    num_upgrades, busy_s = 5.0, 0.1
    held = Estimates(powerful=Speed(units_done=num_upgrades * 400.0 * unit, busy_s=busy_s), num_upgrades=num_upgrades)
    speed = estimates.units_per_unit_s(held.powerful, curve_units_per_unit_s=20_000.0)
    cost = estimates.units_per_upgrade(held, curve_units_per_unit_s=20_000.0, curve_units_per_upgrade=400.0)
    assert speed / cost == pytest.approx((num_upgrades + PRIOR_BUSY_S * 50.0) / (busy_s + PRIOR_BUSY_S))


def window(**figures) -> LatencyFacts:
    return LatencyFacts(
        window_index=1,
        source_partition=3,
        num_routers=1,
        num_requests=10,
        latency=histogram([]),
        offered=0,
        dropped=0,
        **{"wide_busy_us": 0, "wide_units_done": 0, **figures},
    )


@pytest.mark.parametrize(
    "garbage",
    [
        {"wide_busy_us": 2**62, "wide_units_done": 5},
        {"wide_busy_us": 5, "wide_units_done": 2**62},
        {"powerful": PowerfulFacts(busy_us=2**62, units_done=5, num_answered=5)},
        {"powerful": PowerfulFacts(busy_us=5, units_done=5, num_answered=2**62)},
    ],
)
def test_a_window_that_says_what_cannot_be_says_nothing_of_speed(garbage):
    held = Estimates(
        wide=Speed(units_done=5e5, busy_s=10.0), powerful=Speed(units_done=1e5, busy_s=10.0), num_upgrades=250.0
    )
    after = estimates.updated(held, window(**garbage), window_s=10.0)
    assert after == estimates.updated(held, window(), window_s=10.0)
