"""Nothing is owed: after hours at a bound, under sheds or in an operator's hands it goes on by its bounded steps."""

import random
from itertools import pairwise

import msgspec
import pytest

from streams.control.gains import DEFAULT_GAINS
from tests.loop.plants import Lagged, QueuePlant, SheddingPlant
from tests.loop.rig import LIMITS, PLENTY_UNITS, SPAN, Rig

RISE = LIMITS.rise_share * SPAN
# An hour of ten-second windows.
HOUR = 360


def fresh() -> tuple[Rig, QueuePlant]:
    """A rig and its plant, which rests at about 250 extras."""
    plant = QueuePlant()
    return Rig(plant=plant), plant


def test_hours_at_the_top_are_followed_by_a_fall_at_once():
    rig, plant = fresh()
    plant.capacity_per_s = 1e9
    assert rig.run(HOUR)[-1] == SPAN
    plant.capacity_per_s = 3_200.0
    # The queue is beyond its limit in the first window: not a tick is spent on what an integral would have stored.
    assert rig.tick().candidate_target < LIMITS.max_candidates - 100


def test_hours_at_the_budgets_cap_leave_no_jump_when_the_pool_grows():
    rig, plant = fresh()
    rig.run(40)
    # 0.02 units x 50,000/s x 0.7 = 700 candidates/s for 10 requests/s: 70 extras each.
    rig.units = 0.02
    capped = rig.run(HOUR)
    assert capped[-100:] == [70] * 100
    assert rig.targets[-1].reason == "capacity"
    rig.units = PLENTY_UNITS
    series = [70, *rig.run(30)]
    assert all(after - before <= RISE for before, after in pairwise(series))
    assert series[-1] == pytest.approx(plant.extras_at(135.0), rel=0.05)


def test_hours_at_base_under_load_are_followed_by_the_same_ramp_as_a_fresh_start():
    rig, plant = fresh()
    plant.idle_p99_ms = 900.0
    assert set(rig.run(HOUR)) == {0}
    plant.idle_p99_ms = 30.0
    assert rig.run(40) == fresh()[0].run(40)


@pytest.mark.parametrize("dead_ticks", [0, 1])
def test_a_pool_that_sheds_is_found_out_though_latency_is_calm_and_comes_to_rest(dead_ticks):
    plant = SheddingPlant(lag=Lagged(dead_ticks=dead_ticks))
    rig = Rig(plant=plant)
    series = rig.run(300)
    able = plant.capacity_per_s / plant.rate_per_s
    assert series[-1] == pytest.approx(able, rel=0.03)
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN
    assert (series[-1] - able) / series[-1] <= LIMITS.shed_allowance


def test_hours_of_shedding_wind_nothing_up_and_recovery_is_the_bounded_ramp():
    plant = SheddingPlant(capacity_per_s=1.0)
    rig = Rig(plant=plant)
    # Whatever is offered is dropped, and p99 looks fine all the while.
    shedding = rig.run(HOUR)
    assert max(shedding[-100:]) <= 10
    plant.capacity_per_s = 2_500.0
    series = [shedding[-1], *rig.run(60)]
    held = DEFAULT_GAINS.shed_hold_ticks
    assert all(after - before <= RISE for before, after in pairwise(series))
    assert series[held + 2] > series[0]
    assert series[-1] == pytest.approx(250.0, rel=0.05)


def test_noisy_sheds_do_not_push_the_target_far_beyond_what_is_ranked():
    plant = SheddingPlant(noise=0.05)
    rig = Rig(plant=plant)
    series = rig.run(300)[-200:]
    assert 225 <= sum(series) / len(series) <= 275


def test_an_operators_hold_stores_nothing():
    rig, _ = fresh()
    rig.run(50)
    rest = rig.extras
    rig.command("override", candidate_target=LIMITS.base_candidates + 30)
    rig.run(HOUR)
    assert rig.extras == 30
    rig.command("resume")
    series = [30, *rig.run(40)]
    assert abs(series[1] - 30) <= 0.01 * SPAN
    assert all(after - before <= RISE for before, after in pairwise(series))
    assert series[-1] == pytest.approx(rest, rel=0.05)


def test_a_thousand_removals_and_returns_of_capacity_leave_the_target_where_it_was():
    dice = random.Random(7)
    rig, plant = fresh()
    rest = plant.extras_at(135.0)
    assert rig.run(60)[-1] == pytest.approx(rest, abs=0.02 * SPAN)
    for _ in range(1_000):
        # All of the pool, or so much that what is left does not pay for the target.
        rig.units = dice.choice([0.0, 0.01, 0.03, 0.06])
        rig.tick()
        rig.units = PLENTY_UNITS
        before = rig.extras
        rig.run(dice.choice([1, 1, 1, 3]))
        assert rig.extras - before <= 3 * RISE
    series = rig.run(60)
    assert series[-1] == pytest.approx(rest, abs=0.02 * SPAN)
    assert max(series[-20:]) - min(series[-20:]) <= 0.02 * SPAN


def test_flapping_capacity_is_no_ratchet_for_a_coarse_span_either():
    # A span of ten: a step is less than a candidate, and what is rounded away must not be lost.
    limits = msgspec.structs.replace(LIMITS, base_candidates=4, max_candidates=14, rise_share=0.05)
    rig = Rig(plant=QueuePlant(capacity_per_s=1e6), limits=limits)
    assert rig.run(60)[-1] == 10
    for _ in range(50):
        rig.units = 0.0
        rig.tick()
        rig.units = PLENTY_UNITS
        rig.run(2)
    assert rig.run(60)[-1] == 10
