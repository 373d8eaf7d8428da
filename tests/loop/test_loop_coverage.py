"""Coverage in closed loop: it follows the mix, owes nothing, comes to rest, and is found again where it was."""

import random
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from schemas.records import CellLimits
from streams.control.coverage.calibration import MOST
from streams.control.coverage.steer import PROBE_SHARE
from streams.control.gains import Gains
from streams.control.hold import Hold
from tests.loop.coverage_rig import LIMITS, SPAN, WINDOW_S, CoverageRig, SegmentPlant

BEFORE = {"books": 0.6, "cars": 0.2, "(none)": 0.1, "travel": 0.1}
AFTER = {"books": 0.1, "cars": 0.2, "(none)": 0.1, "travel": 0.6}
# The best before asks little after, so that the shift takes most of the coverage with it.
ESTIMATES = {"books": 4.0, "cars": 3.0, "(none)": 2.0, "travel": 1.0}
RISE = LIMITS.rise_share * SPAN
# An hour of ten-second windows.
HOUR = 360


def paid_for(coverage: float, num_requests: int) -> float:
    """Upgrades a second that pay for a coverage."""
    return coverage * num_requests / WINDOW_S


def settled(num_requests: int, *, seed: int | None = None, coverage: float = 0.3, **plant: object) -> CoverageRig:
    """A cell whose coverage has reached what is paid for."""
    dice = None if seed is None else np.random.default_rng(seed)
    made = SegmentPlant(num_requests=num_requests, mix=BEFORE, dice=dice, **plant)  # type: ignore[arg-type]
    rig = CoverageRig(plant=made, estimates=ESTIMATES, paid_per_s=paid_for(coverage, num_requests))
    rig.run(250)
    assert rig.coverage == pytest.approx(coverage, abs=0.01)
    return rig


def followed(rig: CoverageRig, num_ticks: int) -> tuple[list[float], list[tuple[float, float]]]:
    """Per tick, how far the mean assigned probability is from the target, and the realised coverage with three errors.

    The mean is over the true mix: over the few requests of a tick it would be noise of who happened to ask.
    """
    means, realised = [], []
    for _ in range(num_ticks):
        target, expected = rig.coverage, rig.plant.expected(rig.decisions[-1])
        rig.tick()
        num = sum(traffic.num_requests for traffic in rig.windows[-1])
        routed = sum(traffic.num_routed for traffic in rig.windows[-1])
        means.append(expected * (1.0 - rig.plant.deaf) - target)
        realised.append((routed / num - target, 3.0 * (target * (1.0 - target) / num) ** 0.5))
    return means, realised


@pytest.mark.parametrize("num_requests", [50, 150, 1_000, 5_000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_ticks_after_a_shift_of_the_mix_coverage_is_what_was_asked_for(num_requests, seed):
    rig = settled(num_requests, seed=seed)
    rig.plant.mix = AFTER
    first, _ = followed(rig, 10)
    # Without a word from the loop the shift takes this much away.
    assert min(first) < -0.05
    means, realised = followed(rig, 30)
    assert max(map(abs, means)) <= 0.02
    assert all(abs(error) <= 0.02 + three_errors for error, three_errors in realised)
    assert abs(sum(error for error, _ in realised)) / 30 <= 0.02 + realised[0][1] / 30**0.5


@pytest.mark.parametrize("num_requests", [100, 1_000])
def test_segments_that_are_allowed_differently_or_new_are_no_exception(num_requests):
    rig = settled(num_requests, seed=5, allowed={"books": 0.95, "travel": 0.7, "games": 0.8})
    rig.plant.mix = {"games": 0.5, "books": 0.1, "travel": 0.4}
    followed(rig, 10)
    means, _ = followed(rig, 30)
    assert max(map(abs, means)) <= 0.02


def test_a_mix_that_shifts_again_and_again_is_followed_each_time():
    rig = settled(1_000, seed=6)
    for mix in (AFTER, BEFORE, AFTER, {"cars": 1.0}, BEFORE):
        rig.plant.mix = mix
        followed(rig, 10)
        means, _ = followed(rig, 5)
        assert max(map(abs, means)) <= 0.02


@pytest.mark.parametrize("seed", [None, 7])
def test_what_deaf_routers_leave_out_is_made_up_for_and_given_back(seed):
    rig = settled(1_000, seed=seed)
    rig.plant.deaf = 0.3
    followed(rig, 10)
    means, _ = followed(rig, 30)
    assert max(map(abs, means)) <= 0.02
    assert rig.coverage == pytest.approx(0.3, abs=1e-6)
    rig.plant.deaf = 0.0
    followed(rig, 10)
    means, _ = followed(rig, 30)
    assert max(map(abs, means)) <= 0.02


def test_a_correction_beyond_its_bound_is_not_owed():
    rig = settled(1_000)
    rig.plant.deaf = 0.9
    rig.run(HOUR)
    assert rig.loop.correction == MOST
    rig.plant.deaf = 0.0
    means, _ = followed(rig, 11)
    # As if it had been at its bound for a moment only.
    assert abs(means[10]) <= 0.02


def test_hours_in_which_every_share_is_one_leave_nothing_behind():
    rig = settled(1_000, allowed=dict.fromkeys(BEFORE, 0.15), coverage=0.135)
    rig.paid_per_s = 1e6
    rig.run(HOUR)
    # More is paid for than the arms allow.
    assert rig.decisions[-1].reason == "arms"
    assert rig.coverage == pytest.approx(0.15, abs=1e-3)
    assert rig.loop.correction == pytest.approx(1.0, abs=0.01)
    rig.paid_per_s = paid_for(0.1, 1_000)
    means, _ = followed(rig, 5)
    assert max(map(abs, means[1:])) <= 0.005


def test_hours_of_hardly_any_demand_leave_coverage_where_capacity_puts_it():
    rig = settled(1_000, seed=8)
    rig.plant.num_requests = 2
    rig.run(HOUR)
    assert rig.loop.correction == pytest.approx(1.0, abs=0.02)
    rig.plant.num_requests = 1_000
    rig.run(20)
    assert rig.coverage == pytest.approx(0.3, abs=0.01)
    means, _ = followed(rig, 10)
    assert max(map(abs, means)) <= 0.02


def test_hours_of_shedding_leave_no_integral_and_recovery_is_bounded():
    rig = CoverageRig(plant=SegmentPlant(num_requests=1_000, mix=BEFORE, capacity=0.5, sheds_at=0.5))
    assert max(rig.run(HOUR)) <= PROBE_SHARE * SPAN
    rig.plant.capacity, rig.plant.sheds_at = 1e9, None
    series = [rig.coverage, *rig.run(160)]
    assert all(after - before <= RISE + 1e-6 for before, after in pairwise(series))
    # The route is tried again within a minute or ten of them, and then rises as from a fresh start.
    assert series[-1] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("dead_ticks", [0, 1])
@pytest.mark.parametrize("share", [0.2, 0.45])
def test_it_comes_to_rest_where_the_queue_of_the_powerful_route_puts_it(dead_ticks, share):
    plant = SegmentPlant(num_requests=2_000, mix=BEFORE, capacity=2_000 * share, dead_ticks=dead_ticks)
    rig = CoverageRig(plant=plant)
    rest = (1.0 - 30.0 / 135.0) * share
    series = rig.run(300)
    reached = next(tick for tick, coverage in enumerate(series) if coverage >= rest - 0.02 * SPAN)
    assert reached <= 60
    assert max(series) <= rest * 1.1
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN
    assert series[-1] == pytest.approx(rest, abs=0.02 * SPAN)
    plant.capacity *= 0.9
    down = rig.run(60)
    assert all(coverage == pytest.approx(0.9 * rest, rel=0.1) for coverage in down[10:])


@pytest.mark.parametrize("dead_ticks", [0, 1])
def test_a_pool_that_sheds_is_found_out_and_comes_to_rest(dead_ticks):
    plant = SegmentPlant(num_requests=10_000, mix=BEFORE, capacity=4_000, sheds_at=0.5, dead_ticks=dead_ticks)
    rig = CoverageRig(plant=plant)
    series = rig.run(400)
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN
    assert series[-1] == pytest.approx(0.2, rel=0.03)


def test_half_the_pool_lost_is_a_fall_at_once_and_back_within_the_bounded_ramp():
    rig = settled(2_000, coverage=0.3, capacity=2_000 * 0.45)
    rig.plant.capacity *= 0.5
    rest = (1.0 - 30.0 / 135.0) * 0.225
    series = rig.run(80)
    assert series[0] == 0.0
    assert all(coverage == pytest.approx(rest, rel=0.1) for coverage in series[60:])


def test_a_model_that_is_too_slow_whatever_its_load_is_no_oscillation():
    plant = SegmentPlant(num_requests=2_000, mix=BEFORE, idle_p99_ms=400.0)
    rig = CoverageRig(plant=plant)
    series = rig.run(600)
    assert max(series) <= PROBE_SHARE * SPAN
    assert sum(coverage > 0.0 for coverage in series[-200:]) <= 20


def test_a_thousand_removals_and_returns_of_capacity_leave_it_where_it_was():
    dice = random.Random(7)
    rig = settled(1_000)
    for _ in range(1_000):
        rig.paid_per_s = dice.choice([0.0, 5.0, 10.0, 20.0])
        rig.tick()
        rig.paid_per_s = paid_for(0.3, 1_000)
        before = rig.coverage
        rig.run(dice.choice([1, 1, 1, 3]))
        assert rig.coverage - before <= 3 * RISE + 1e-6
    series = rig.run(60)
    assert series[-1] == pytest.approx(0.3, abs=1e-6)
    assert max(series[-40:]) - min(series[-40:]) <= 1e-6


@pytest.mark.parametrize("fault", ["blind", "no_capacity"])
def test_it_is_at_zero_in_the_tick_of_the_fault_and_back_on_the_ramp(fault):
    rig = settled(200, seed=9)
    if fault == "blind":
        rig.num_routers = 0
    else:
        rig.paid_per_s = 0.0
    decision = rig.tick()
    assert (decision.coverage, decision.segment_shares, decision.other_share) == (0.0, (), 0.0)
    assert decision.reason == fault
    rig.num_routers, rig.paid_per_s = 1, paid_for(0.3, 200)
    series = [0.0, *rig.run(12)]
    assert all(after - before <= RISE + 1e-6 for before, after in pairwise(series))
    assert series[-1] == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("idle_p99_ms", [10.0, 30.0, 90.0])
@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(("num_requests", "most_ticks"), [(50, 60), (200, 60), (1_000, 40), (10_000, 40)])
def test_from_nothing_a_cell_rises_within_minutes_even_with_a_handful_of_requests(
    num_requests, most_ticks, seed, idle_p99_ms
):
    dice = np.random.default_rng(seed)
    plant = SegmentPlant(num_requests=num_requests, mix=BEFORE, dice=dice, idle_p99_ms=idle_p99_ms)
    rig = CoverageRig(plant=plant, paid_per_s=paid_for(0.5, num_requests))
    series = rig.run(most_ticks)
    assert series[-1] == pytest.approx(0.5, abs=0.01)
    assert all(after - before <= RISE + 1e-6 for before, after in pairwise([0.0, *series]))


@pytest.mark.parametrize("dead_ticks", [0, 1])
@pytest.mark.parametrize("idle_p99_ms", [20.0, 60.0, 90.0])
def test_a_route_with_much_room_and_one_with_little_are_found_in_sixty_ticks_and_found_again(idle_p99_ms, dead_ticks):
    plant = SegmentPlant(num_requests=1_000, mix=BEFORE, capacity=600.0, idle_p99_ms=idle_p99_ms, dead_ticks=dead_ticks)
    rig = CoverageRig(plant=plant)
    rest = min(SPAN, (1.0 - idle_p99_ms / 135.0) * 0.6)
    series = rig.run(60)
    assert series[-1] == pytest.approx(rest, abs=0.02 * SPAN)
    assert max(series) <= 1.1 * rest
    rig.run(60)
    for _ in range(3):
        rig.num_routers = 0
        assert rig.tick().coverage == 0.0
        rig.num_routers = 1
        back = rig.run(60)
        assert all(coverage == pytest.approx(rest, abs=0.02 * SPAN) for coverage in back[12:])
        assert max(back) <= 1.1 * rest


def test_an_hour_in_an_operators_hands_stores_nothing_and_lets_go_without_a_jump():
    rig = settled(1_000)
    rig.hold = Hold(
        action="override", operator="ops", reason="a drill", candidate_target=None, expires_ms=None, coverage=0.05
    )
    rig.plant.deaf = 0.2
    assert set(rig.run(HOUR)) == {0.05}
    assert rig.loop.correction == pytest.approx(1.0, abs=0.1)
    rig.hold, rig.plant.deaf = None, 0.0
    series = [0.05, *rig.run(40)]
    assert abs(series[1] - 0.05) <= 0.01 * SPAN
    assert all(after - before <= RISE + 1e-6 for before, after in pairwise(series))
    assert series[-1] == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("limits", "gains"),
    [
        (msgspec.structs.replace(LIMITS, powerful_limit_ms=500.0), Gains()),
        (msgspec.structs.replace(LIMITS, powerful_limit_ms=40.0), Gains()),
        (msgspec.structs.replace(LIMITS, rise_share=0.5), Gains()),
        (LIMITS, Gains(integral=0.9, rise_integral=1.0)),
    ],
)
def test_a_change_of_limits_or_gains_is_no_jump(limits: CellLimits, gains: Gains):
    plant = SegmentPlant(num_requests=2_000, mix=BEFORE, capacity=2_000 * 0.3)
    rig = CoverageRig(plant=plant)
    rest = rig.run(200)[-1]
    rig.limits, rig.gains = limits, gains
    assert abs(rig.tick().coverage - rest) <= 0.01 * SPAN


def test_the_same_windows_give_the_same_bytes():
    def run() -> list[bytes]:
        rig = CoverageRig(
            plant=SegmentPlant(num_requests=300, mix=BEFORE, dice=np.random.default_rng(13), deaf=0.1),
            estimates=ESTIMATES,
        )
        rig.run(60)
        return [msgspec.msgpack.encode(decision.loop) for decision in rig.decisions]

    assert run() == run()
