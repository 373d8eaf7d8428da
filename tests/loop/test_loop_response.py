"""What the loop does when the world changes: steps, ramps and noise, up slowly and down fast."""

import statistics
from itertools import pairwise

import msgspec
import pytest

from tests.loop.plants import Lagged, LinearPlant, QueuePlant, ScriptedPlant
from tests.loop.rig import LIMITS, SPAN, Rig

SETPOINT_MS = 135.0
LAGS = {
    "at once": Lagged(),
    "lagged": Lagged(lag_ticks=1.0),
    "a tick late": Lagged(dead_ticks=1, lag_ticks=0.3),
}


def lag(name: str) -> Lagged:
    return Lagged(dead_ticks=LAGS[name].dead_ticks, lag_ticks=LAGS[name].lag_ticks)


def plant_resting_at(extras: float, kind: type[QueuePlant], **figures) -> QueuePlant:
    """A plant whose p99 meets the setpoint with so many extras."""
    plant = kind(**figures)
    plant.capacity_per_s *= extras / plant.extras_at(SETPOINT_MS)
    return plant


def settled_after(series: list[int], *, at: float, within: float) -> int:
    """Ticks after which the series stays within that distance."""
    return max((tick for tick, extras in enumerate(series, start=1) if abs(extras - at) > within), default=0)


@pytest.mark.parametrize("delay", LAGS)
@pytest.mark.parametrize("kind", [QueuePlant, LinearPlant])
@pytest.mark.parametrize("rest", [60.0, 400.0])
def test_from_base_it_reaches_the_setpoint_in_sixty_ticks_without_overshoot_and_rests(rest, kind, delay):
    rig = Rig(plant=plant_resting_at(rest, kind, lag=lag(delay)))
    series = rig.run(300)
    assert max(series) <= 1.1 * rest
    assert settled_after(series, at=rest, within=0.05 * rest + 2) <= 60
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN


@pytest.mark.parametrize("delay", LAGS)
@pytest.mark.parametrize(("kind", "loss"), [(LinearPlant, 0.5), (LinearPlant, 0.2), (QueuePlant, 0.1)])
def test_when_the_pool_slows_down_it_settles_in_ten_ticks(kind, loss, delay):
    plant = plant_resting_at(400.0, kind, lag=lag(delay))
    rig = Rig(plant=plant)
    rig.run(80)
    plant.capacity_per_s *= 1.0 - loss
    rest = 400.0 * (1.0 - loss)
    series = rig.run(240)
    assert settled_after(series, at=rest, within=0.1 * rest) <= 10
    # A steep queue that is seen a tick late is cut once too often, and only once.
    overshoot = 0.2 if plant.lag.dead_ticks and kind is QueuePlant else 0.1
    assert min(series) >= (1.0 - overshoot) * rest
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN


def test_a_pool_that_loses_half_overshoots_to_base_at_once_and_is_back_in_sixty_ticks():
    # Twice the load that a queue can bear: p99 is at the time-outs, and there is nothing to be gentle about.
    plant = plant_resting_at(400.0, QueuePlant)
    rig = Rig(plant=plant)
    rig.run(60)
    plant.capacity_per_s /= 2.0
    series = rig.run(260)
    assert series[0] == 0
    assert settled_after(series, at=200.0, within=20.0) <= 60
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN


def test_a_moving_optimum_is_followed():
    plant = plant_resting_at(150.0, QueuePlant, lag=lag("lagged"))
    rig = Rig(plant=plant)
    rig.run(60)
    for factor in [1.01] * 80 + [1.0 / 1.01] * 80:
        plant.capacity_per_s *= factor
        rig.tick()
        rest = plant.extras_at(SETPOINT_MS)
        assert abs(rig.extras - rest) <= 0.15 * rest


@pytest.mark.parametrize("rise_share", [0.02, 0.1, 0.25])
@pytest.mark.parametrize("noise", [0.05, 0.15])
def test_noise_neither_drags_the_target_down_nor_rocks_it(noise, rise_share):
    limits = msgspec.structs.replace(LIMITS, rise_share=rise_share)
    rig = Rig(plant=plant_resting_at(250.0, QueuePlant, noise=noise), limits=limits)
    series = rig.run(300 if rise_share < 0.1 else 200)[-120:]
    assert 0.9 * 250.0 <= statistics.mean(series) <= 250.0 * 1.02
    # The relative deviation of the target is less than that of what it is steered by.
    assert statistics.pstdev(series) <= noise * 250.0 * 0.5


def test_latency_far_over_the_limit_takes_all_extras_in_one_tick():
    rig = Rig(plant=ScriptedPlant(p99_ms=lambda index: 20.0 if index < 40 else 1_500.0))
    assert rig.run(40)[-1] == SPAN
    assert rig.tick().candidate_target == LIMITS.base_candidates
    assert rig.targets[-1].reason == "latency"


@pytest.mark.parametrize(("units", "reason"), [(0.0, "no_capacity"), (1e-6, "capacity")])
def test_capacity_that_goes_takes_all_extras_in_one_tick(units, reason):
    rig = Rig(plant=ScriptedPlant(p99_ms=lambda _: 20.0))
    assert rig.run(40)[-1] == SPAN
    rig.units = units
    assert rig.tick().candidate_target == LIMITS.base_candidates
    assert rig.targets[-1].reason == reason


@pytest.mark.parametrize("rise_share", [0.004, 0.05, 0.3])
def test_whatever_happens_it_rises_by_its_share_of_the_span_at_most(rise_share):
    limits = msgspec.structs.replace(LIMITS, rise_share=rise_share)
    waves = [1.0, 1.0, 1.0, 1_500.0, 1.0, 130.0, 1.0, 1.0, 90.0, 1.0]
    rig = Rig(plant=ScriptedPlant(p99_ms=lambda index: waves[index % len(waves)]), limits=limits)
    series = [0, *rig.run(150)]
    rises = [after - before for before, after in pairwise(series)]
    assert 0 < max(rises) <= rise_share * SPAN


def test_the_same_windows_give_the_same_bytes():
    def played() -> list[object]:
        rig = Rig(plant=plant_resting_at(250.0, QueuePlant, noise=0.1))
        rig.run(50)
        return [*rig.targets, rig.state]

    assert played() == played()


@pytest.mark.parametrize("idle_p99_ms", [20.0, 50.0])
def test_a_cell_as_in_the_demo_rises_within_ten_seconds_and_is_at_the_top_within_thirty(idle_p99_ms):
    limits = msgspec.structs.replace(
        LIMITS, base_candidates=64, max_candidates=256, rise_share=0.25, units_per_unit_s=20_000.0
    )
    plant = QueuePlant(rate_per_s=55.0, capacity_per_s=28_000.0, idle_p99_ms=idle_p99_ms, lag=Lagged(dead_ticks=1))
    series = Rig(plant=plant, limits=limits, units=2.0, window_ms=2_000).run(15)
    assert series[4] >= 0.1 * 192
    assert series[14] == 192
