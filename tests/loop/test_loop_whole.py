"""Both levers on, with calibration and allocator: steps, rest, no wind-up, no jump; on two routes in closed loop."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from schemas.records import CandidateTarget
from streams.control.gains import Gains
from streams.control.settings import ControlSettings
from tests.loop.cell_rig import LIMITS, SPAN, CellRig, Pool
from tests.loop.two_routes import Queue, TwoRoutes

TOP = LIMITS.max_coverage
RISE = LIMITS.rise_share * SPAN
# An hour of ten-second windows.
HOUR = 360


def plant(*, wide_ms: float = 30.0, powerful_ms: float = 60.0, truly: float = 1.0, **figures) -> TwoRoutes:
    """A cell whose routes are so slow when idle, and ``truly`` as fast as their curves say."""
    return TwoRoutes(
        wide=Queue(lever="rma", speeds={"a100": 50_000.0 * truly, "t4": 10_000.0 * truly}, idle_p99_ms=wide_ms),
        powerful=Queue(lever="sbm", speeds={"a100": 40_000.0 * truly}, idle_p99_ms=powerful_ms),
        **figures,
    )


def settled(**changes) -> CellRig:
    """A cell at rest, where capacity or latency puts it."""
    rig = CellRig(**changes)
    rig.run(200)
    return rig


def spread(values: Sequence[float]) -> float:
    """Peak to peak."""
    return max(values) - min(values)


def steps(values: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(values)]


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"wide_ms": 60.0},
        {"powerful_ms": 90.0},
        {"wide_ms": 60.0, "powerful_ms": 90.0},
        {"truly": 0.5},
        {"truly": 2.0},
    ],
)
def test_with_everything_on_a_cell_comes_to_rest(figures):
    rig = CellRig(plant=plant(**figures))
    targets = rig.run(500)[-200:]
    assert spread([target.candidate_target for target in targets]) <= 0.02 * SPAN
    assert spread([target.coverage for target in targets]) <= 0.02 * TOP
    assert rig.extras > 0.05 * SPAN
    assert 0.05 * TOP < rig.target.coverage <= TOP
    assert rig.snapshots["a100"].allocation == "program"


@pytest.mark.parametrize("units", [0.4, 2.0])
def test_with_upstream_as_what_binds_loops_and_allocator_do_not_rock_each_other(units):
    # 60 % of 25,000 extras a second bring its p99 from 36 to 90 ms: 150 extras a request.
    figures = {"upstream_p99_ms": 36.0, "upstream_bears_per_s": 25_000.0}
    rig = CellRig(
        plant=plant(powerful_ms=30.0, **figures),
        limits=msgspec.structs.replace(LIMITS, upstream_limit_ms=100.0),
        pools=[Pool(units=units)],
    )
    targets = rig.run(500)[-200:]
    assert spread([target.candidate_target for target in targets]) <= 0.02 * SPAN
    assert spread([target.coverage for target in targets]) <= 0.02 * TOP
    assert rig.extras == pytest.approx(min(150.0, rig.target.extra_budget_units_s / 100.0), abs=0.02 * SPAN)


def test_bursts_of_shedding_do_not_set_it_rocking():
    rig = CellRig(plant=plant(wide_ms=60.0))
    rig.run(150)
    rest, coverage = rig.extras, rig.target.coverage
    for burst in range(10):
        rig.plant.shed_share = 0.1 + 0.03 * burst
        assert rig.run(3)[-1].reason == "shedding"
        rig.plant.shed_share = 0.0
        rig.run(7)
    rig.run(40)
    targets = rig.run(200)
    assert spread([target.candidate_target for target in targets]) <= 0.02 * SPAN
    assert spread([target.coverage for target in targets]) <= 0.02 * TOP
    assert rig.extras == pytest.approx(rest, abs=0.02 * SPAN)
    assert rig.target.coverage == pytest.approx(coverage, abs=0.02 * TOP)


def test_when_all_capacity_goes_both_targets_are_at_base_in_one_tick():
    rig = settled()
    assert rig.extras > 100
    assert rig.target.coverage > 0.1
    rig.pools[0].units = 0.0
    target = rig.tick()
    assert (rig.extras, target.coverage, target.segment_shares, target.other_share) == (0, 0.0, [], 0.0)
    assert (target.extra_budget_units_s, target.powerful_budget_units_s) == (0.0, 0.0)
    assert (target.reason, target.coverage_reason) == ("no_capacity", "no_capacity")


def test_a_reclaim_acts_in_its_own_tick_and_not_when_the_allocator_runs_next():
    rig = settled()
    assert rig.state.split.age_ticks == 9
    rig.tick()
    # Just made: nine ticks to go to the next split.
    before = rig.target
    rig.pools[0].units /= 4.0
    after = rig.tick()
    assert rig.state.split.age_ticks == 1
    assert after.extra_budget_units_s == pytest.approx(before.extra_budget_units_s / 4.0, rel=0.01)
    assert after.powerful_budget_units_s == pytest.approx(before.powerful_budget_units_s / 4.0, rel=0.01)
    assert (after.reason, after.coverage_reason) == ("capacity", "capacity")
    assert after.candidate_target - 100 == pytest.approx((before.candidate_target - 100) / 4.0, abs=2.0)


def stepped(rig: CellRig, num_ticks: int, **limits: float) -> list[CandidateTarget]:
    """Targets after other limits."""
    rig.limits = msgspec.structs.replace(rig.limits, **limits)
    return rig.run(num_ticks)


def is_settled(series: Sequence[float], *, before: float, after_ticks: int, within: float) -> bool:
    """Whether it comes to rest in time, and never goes beyond its new rest by a tenth of the step, or a rounding."""
    rest = series[-1]
    beyond = max((value - rest if rest > before else rest - value) for value in series)
    is_in_time = all(abs(value - rest) <= within for value in series[after_ticks:])
    return is_in_time and beyond <= 0.1 * abs(rest - before) + 0.004 * within


@pytest.mark.parametrize("lower", [0.9, 0.75])
def test_another_latency_limit_is_reached_in_ten_ticks_down_and_sixty_up(lower):
    rig = settled(plant=plant(wide_ms=60.0))
    rest = rig.extras
    down = [target.candidate_target - 100 for target in stepped(rig, 100, latency_limit_ms=150.0 * lower)]
    # 60 ms / (1 - load) at nine tenths of the limit.
    assert down[-1] == pytest.approx(rest * (1.0 - 60.0 / (135.0 * lower)) / (1.0 - 60.0 / 135.0), rel=0.05)
    assert is_settled(down, before=rest, after_ticks=10, within=0.1 * down[-1])
    up = [target.candidate_target - 100 for target in stepped(rig, 100, latency_limit_ms=150.0)]
    assert up[-1] == pytest.approx(rest, abs=0.01 * SPAN)
    assert is_settled(up, before=down[-1], after_ticks=60, within=0.05 * rest)


@pytest.mark.parametrize("lower", [0.9, 0.8])
def test_another_limit_of_the_powerful_route_is_reached_in_ten_ticks_down_and_sixty_up(lower):
    rig = settled(plant=plant(upgrade_units=700.0))
    rest = rig.target.coverage
    down = [target.coverage for target in stepped(rig, 100, powerful_limit_ms=150.0 * lower)]
    assert down[-1] == pytest.approx(rest * (1.0 - 60.0 / (135.0 * lower)) / (1.0 - 60.0 / 135.0), rel=0.05)
    assert is_settled(down, before=rest, after_ticks=10, within=0.1 * down[-1])
    up = [target.coverage for target in stepped(rig, 100, powerful_limit_ms=150.0)]
    assert up[-1] == pytest.approx(rest, abs=0.01 * TOP)
    assert is_settled(up, before=down[-1], after_ticks=60, within=0.05 * rest)


def test_a_lever_that_turns_out_slower_is_cut_in_a_tick_and_then_gets_more_of_the_pool():
    rig = settled(plant=plant(wide_ms=60.0))
    before, units = rig.extras, rig.units("rma")
    rig.plant.wide.speeds = {"a100": 40_000.0}
    assert rig.tick().reason == "latency"
    assert rig.extras < 0.9 * before
    # Its work is worth as much as before, and takes more units now.
    rig.run(60)
    assert rig.units("rma") > 1.05 * units
    assert rig.target.latency_p99_ms == pytest.approx(135.0, rel=0.05)


@pytest.mark.parametrize("rate_per_s", [1.0, 0.2])
def test_hours_of_low_demand_leave_budgets_and_coverage_where_capacity_puts_them(rate_per_s):
    rig = settled()
    before = rig.target
    rig.plant.rate_per_s = rate_per_s
    rig.run(3 * HOUR)
    quiet = rig.target
    assert quiet.extra_budget_units_s == pytest.approx(before.extra_budget_units_s, rel=0.02)
    assert quiet.powerful_budget_units_s == pytest.approx(before.powerful_budget_units_s, rel=0.02)
    # Fewer requests are offered more each, not less.
    assert quiet.candidate_target >= before.candidate_target
    assert quiet.coverage >= before.coverage - 0.01 * TOP
    while rig.plant.rate_per_s < 100.0:
        rig.plant.rate_per_s = min(100.0, 1.1 * rig.plant.rate_per_s)
        rig.tick()
    rig.run(10)
    assert rig.target.candidate_target == pytest.approx(before.candidate_target, abs=0.02 * SPAN)
    assert rig.target.coverage == pytest.approx(before.coverage, abs=0.02 * TOP)


def test_hours_of_shedding_leave_no_integral_in_any_loop():
    rig = settled()
    before = rig.target
    rig.plant.shed_share = 0.9
    shedding = rig.run(HOUR)
    assert rig.extras <= 20
    assert shedding[-1].coverage == pytest.approx(before.coverage, abs=0.01 * TOP)
    rig.plant.shed_share = 0.0
    series = [rig.extras, *(target.candidate_target - 100 for target in rig.run(60))]
    assert max(steps(series)) <= RISE
    assert series[-1] == pytest.approx(before.candidate_target - 100, abs=0.02 * SPAN)


@pytest.mark.parametrize(
    "changes", [{"powerful_limit_ms": 60.0}, {"latency_limit_ms": 60.0}, {"shed_allowance": 0.3}, {"rise_share": 0.5}]
)
@pytest.mark.parametrize("num_ticks", [8, 40, 150])
def test_new_limits_make_no_jump_of_either_target(changes, num_ticks):
    rig = CellRig(plant=plant(wide_ms=60.0, powerful_ms=90.0))
    before = rig.run(num_ticks)[-1]
    rig.limits = msgspec.structs.replace(LIMITS, **changes)
    after = rig.tick()
    assert abs(after.candidate_target - before.candidate_target) <= 0.01 * SPAN
    assert abs(after.coverage - before.coverage) <= 0.01 * TOP


@pytest.mark.parametrize("num_ticks", [8, 40, 150])
def test_new_gains_make_no_jump_of_either_target(num_ticks):
    rig = CellRig(plant=plant(wide_ms=60.0, powerful_ms=90.0))
    before = rig.run(num_ticks)[-1]
    rig.settings = ControlSettings(gains=Gains(setpoint_share=0.5, integral=0.6, rise_integral=1.0, proportional=0.5))
    after = rig.tick()
    assert abs(after.candidate_target - before.candidate_target) <= 0.01 * SPAN
    assert abs(after.coverage - before.coverage) <= 0.01 * TOP


@pytest.mark.parametrize("num_ticks", [8, 40, 150])
def test_a_freeze_and_its_end_make_no_jump_of_either_target(num_ticks):
    rig = CellRig(plant=plant(wide_ms=60.0, powerful_ms=90.0))
    before = rig.run(num_ticks)[-1]
    rig.command("freeze")
    for target in rig.run(20):
        assert (target.candidate_target, target.coverage) == (before.candidate_target, before.coverage)
        assert (target.reason, target.coverage_reason) == ("operator", "operator")
    rig.command("resume")
    after = rig.tick()
    assert abs(after.candidate_target - before.candidate_target) <= 0.01 * SPAN
    assert abs(after.coverage - before.coverage) <= 0.01 * TOP


def test_an_override_of_coverage_holds_it_alone_and_its_end_leaves_it_there():
    rig = settled()
    extras = rig.extras
    rig.command("override", coverage=0.2)
    held = rig.run(30)
    assert {(target.coverage, target.coverage_reason) for target in held} == {(0.2, "operator")}
    assert rig.extras == pytest.approx(extras, abs=0.02 * SPAN)
    assert held[-1].reason != "operator"
    rig.command("resume")
    assert rig.tick().coverage == pytest.approx(0.2, abs=0.01 * TOP)
    assert rig.run(60)[-1].coverage > 0.3
