"""What the controller is compared with: the articles' rule with its flaws, and a bound that nobody beats."""

import msgspec
import numpy as np
import pytest

from ops.twin.baselines import CONTROLLERS
from ops.twin.oracle import _mean_units
from ops.twin.play import cell_play
from ops.twin.run import simulate
from ops.twin.supply import Stay
from ops.twin.threshold import ThresholdRule
from schemas.records import AcceleratorFit, LeverTerms, SegmentTraffic
from tests.unit.ops.twin_makers import scenario, table
from tests.unit.streams.control_makers import LIMITS, capacity_window, latency_window


def stepped(rule: ThresholdRule, *, units: float = 4.0, limits=LIMITS, **latency) -> int:
    word = rule.close(capacity_window(1, units=units, limits=limits), latency_window(1, **latency))
    return word.target.candidate_target


def test_the_rule_grows_by_a_tenth_and_shrinks_by_a_tenth():
    rule = ThresholdRule(table())
    assert stepped(rule) == 110
    assert stepped(rule) == 121
    assert stepped(rule, latency_ms=400.0) == 108
    assert stepped(rule, latency_ms=140.0) == 108


def test_a_target_below_ten_never_grows():
    limits = msgspec.structs.replace(LIMITS, base_candidates=9)
    rule = ThresholdRule(table())
    assert [stepped(rule, limits=limits) for _ in range(50)] == [9] * 50


def test_it_does_not_shrink_when_only_the_capacity_goes_nor_for_sheds():
    rule = ThresholdRule(table())
    for _ in range(20):
        stepped(rule)
    before = stepped(rule, latency_ms=140.0)
    assert before == LIMITS.max_candidates
    assert stepped(rule, units=0.0, shed=9_999) == before


def test_it_upgrades_who_is_worth_most_and_splits_pools_evenly():
    fits = [AcceleratorFit(accelerator="a100", units_per_unit_s=1_000.0)]
    levers = [LeverTerms(lever="rma", fits=fits), LeverTerms(lever="sbm", fits=fits)]
    limits = msgspec.structs.replace(LIMITS, levers=levers, max_coverage=1.0)
    latency = latency_window(1)
    assert latency.latency is not None
    segments = [SegmentTraffic(segment=name, num_requests=100) for name in ("poor", "rich")]
    seen = msgspec.structs.replace(latency.latency, segments=segments)
    word = ThresholdRule(table()).close(
        capacity_window(1, limits=limits), msgspec.structs.replace(latency, latency=seen)
    )
    shares = {share.segment: share.share for share in word.target.segment_shares}
    assert word.target.coverage == pytest.approx(0.11)
    assert shares == {"rich": pytest.approx(0.22), "poor": 0.0}
    assert word.splits == {"a100": {"rma": 0.5, "sbm": 0.5}}


def test_mean_units_are_the_integral_over_each_window():
    play = cell_play(scenario("cpu-starved", duration_s=300.0), 0)
    rng = np.random.default_rng(4)
    stays = []
    for _ in range(30):
        since = float(rng.uniform(0.0, 400.0))
        stays.append(Stay(since, since, since + float(rng.exponential(60.0)), float(rng.integers(1, 5)), 1.0, 1.0))
    stays.append(Stay(50.0, 50.0, float("inf"), 2.0, 1.0, 1.0))
    fine_s = np.arange(0.0, play.schedule.num_windows * play.window_s, 0.01) + 0.005
    for startup_s in (0.0, 45.0):
        there = np.zeros_like(fine_s)
        for stay in stays:
            there += stay.units * ((fine_s >= stay.since_s + startup_s) & (fine_s < stay.until_s))
        slow_K = there.reshape(play.schedule.num_windows, -1).mean(axis=1)
        assert _mean_units(play, stays, startup_s) == pytest.approx(slow_K, abs=0.02)


@pytest.mark.parametrize("name", ["cpu-starved", "accelerator-starved", "reclaim-storm", "two-levers", "upstream"])
def test_nobody_earns_more_than_the_oracle(name):
    made = scenario(name, duration_s=900.0)
    earned = {each: sum(simulate(made, each).totals.earned.values()) for each in CONTROLLERS}
    # Requests of a window are of the segments by chance, which the oracle takes as expected.
    assert max(earned.values()) <= 1.005 * earned["oracle"]
    assert earned["intertidal"] > 0.0


def test_every_controller_is_asked_the_same():
    made = scenario("reclaim-storm", duration_s=600.0)
    runs = [simulate(made, each) for each in CONTROLLERS]
    assert len({run.totals.num_requests for run in runs}) == 1
    assert len({run.totals.num_reclaims for run in runs}) == 1
    first, rule, _ = runs
    asked = [[(tick.num_requests, tick.base_value_micro) for tick in run.cells[0].ticks] for run in (first, rule)]
    assert asked[0] == asked[1]
