"""What callers spend before ranking is the second measured variable: where it is the bottleneck widening stops."""

import msgspec
import pytest

from tests.loop.plants import Lagged, UpstreamPlant
from tests.loop.rig import LIMITS, SPAN, Rig

WATCHED = msgspec.structs.replace(LIMITS, upstream_limit_ms=100.0)
SETPOINT_MS = 90.0
RISE = LIMITS.rise_share * SPAN


def resting_at(extras: float, *, extra_load: float = 0.0, **changes) -> UpstreamPlant:
    """A plant whose upstream p99 would meet the setpoint with so many extras, but for the extra load."""
    plant = UpstreamPlant(**changes)
    plant.capacity_per_s *= extras / plant.extras_at(SETPOINT_MS)
    plant.extra_load = extra_load
    return plant


@pytest.mark.parametrize("lag", [Lagged(), Lagged(lag_ticks=1.0), Lagged(dead_ticks=1, lag_ticks=0.3)])
def test_widening_stops_where_upstream_meets_its_setpoint_though_ranking_is_idle(lag):
    rig = Rig(plant=resting_at(250.0, lag=lag), limits=WATCHED)
    series = rig.run(300)
    assert max(series) <= 1.1 * 250.0
    assert series[-1] == pytest.approx(250.0, abs=0.02 * SPAN)
    assert max(series[-200:]) - min(series[-200:]) <= 0.02 * SPAN
    assert rig.targets[-1].upstream_p99_ms == pytest.approx(SETPOINT_MS, rel=0.05)


def test_upstream_time_that_rises_while_ranking_is_idle_lowers_the_target_and_says_so():
    plant = resting_at(250.0)
    rig = Rig(plant=plant, limits=WATCHED)
    before = rig.run(100)[-1]
    plant.extra_load = 0.2
    assert rig.tick().reason == "upstream"
    assert rig.extras < before
    assert "upstream p99" in rig.targets[-1].detail
    series = rig.run(60)
    assert series[9] == pytest.approx(plant.extras_at(SETPOINT_MS), abs=0.1 * before)
    assert rig.targets[-1].latency_p99_ms == pytest.approx(plant.ranking_p99_ms, rel=0.05)


def test_upstream_that_is_slow_whatever_ranking_does_leaves_base_alone_and_the_way_back_open():
    plant = resting_at(250.0, extra_load=0.9)
    rig = Rig(plant=plant, limits=WATCHED)
    assert set(rig.run(100)) == {0}
    assert {target.reason for target in rig.targets[2:]} == {"upstream"}
    plant.extra_load = 0.0
    assert rig.run(40) == Rig(plant=resting_at(250.0), limits=WATCHED).run(40)


def test_without_a_limit_or_without_a_figure_it_is_no_error():
    unwatched = Rig(plant=resting_at(250.0, extra_load=0.9))
    assert unwatched.run(40)[-1] == SPAN
    unsaid = Rig(plant=resting_at(250.0, extra_load=0.9, said_share=0.0), limits=WATCHED)
    assert unsaid.run(40)[-1] == SPAN
    assert unsaid.targets[-1].upstream_p99_ms is None


def test_few_upstream_samples_hold_as_few_latencies_do_and_are_judged_together():
    # 34 of 100 requests a window say it: two windows make the fifty that a p99 takes.
    plant = resting_at(250.0, said_share=0.34)
    rig = Rig(plant=plant, limits=WATCHED)
    series = rig.run(8)
    assert series == [0, series[1], series[1], series[3], series[3], series[5], series[5], series[7]]
    assert 0 < series[1] < series[3] < series[5]
    assert "34 upstream samples so far, fewer than 50" in rig.targets[2].detail
    assert rig.run(300)[-1] == pytest.approx(250.0, abs=0.02 * SPAN)


def test_few_upstream_samples_keep_nothing_up_that_latency_takes_down():
    plant = resting_at(250.0, said_share=0.34)
    rig = Rig(plant=plant, limits=WATCHED)
    before = rig.run(100)[-1]
    plant.ranking_p99_ms = 400.0
    assert rig.tick().reason == "latency"
    assert rig.extras < before


def test_a_figure_that_hardly_anybody_says_holds_nothing_up():
    rig = Rig(plant=resting_at(250.0, extra_load=0.9, said_share=0.01), limits=WATCHED)
    assert rig.run(60)[-1] == SPAN


@pytest.mark.parametrize("limit_ms", [50.0, 0.0, 1_000.0])
def test_another_upstream_limit_makes_no_jump(limit_ms):
    rig = Rig(plant=resting_at(250.0, noise=0.1), limits=WATCHED)
    before = rig.run(60)[-1]
    rig.limits = msgspec.structs.replace(WATCHED, upstream_limit_ms=limit_ms)
    assert abs(rig.run(1)[0] - before) <= 0.01 * SPAN
