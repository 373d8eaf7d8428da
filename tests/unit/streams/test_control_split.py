"""The split in force: when it is made anew, what of it acts in between, and what happens when nobody can make it."""

import sys

import msgspec
import pytest

from schemas.records import CandidateTarget, CellLimits, LabelledUnits, PoolSnapshot
from streams.control.allocator import allocate as allocate_module
from streams.control.allocator.allocation import Allocation, LeverGrant, PoolGrants
from streams.control.facts import CapacityFacts, PoolFacts
from streams.control.processor import apply
from streams.control.settings import ControlSettings
from streams.control.split import Corrections, Split, digest_of, granted, pool_supply, resplit, supply_of
from streams.control.state import CellState
from tests.loop.cell_rig import GIB, LIMITS, RMA, SBM, CellRig, Pool, fit
from tests.unit.streams.control_makers import capacity_window, latency_window

SETTINGS = ControlSettings(allocator_ticks=4)
NO_CORRECTIONS = Corrections(speeds={}, most_work_units_s={})
ALLOCATOR = "streams.control.allocator.allocate"


def pool(
    accelerator: str = "a100", *, units: float = 2.0, noticed: float = 0.0, cpu_cores: float = 100.0, **unusable: float
):
    """Facts of a pool; its unusable units by reason."""
    snapshot = PoolSnapshot(
        cell="us-east",
        accelerator=accelerator,
        window_index=1,
        window_end_ms=20_000,
        valid_until_ms=50_000,
        num_hosts=1,
        units_micro=round(units * 1e6),
        cpu_cores_micro=round(cpu_cores * 1e6),
        memory_bytes=64 * GIB,
        unusable=[LabelledUnits(label=label, units_micro=round(held * 1e6)) for label, held in unusable.items()],
        causes=[],
        providers=[],
        noticed_units_micro=round(noticed * 1e6),
        num_offers=0,
        num_reclaims=0,
    )
    return PoolFacts(snapshot=snapshot, survives=(None, None))


def facts(*pools: PoolFacts, limits: CellLimits = LIMITS) -> CapacityFacts:
    return CapacityFacts(
        window_index=1,
        source_partition=3,
        end_ms=20_000,
        limits=limits,
        usable_units_micro=0,
        noticed_units_micro=0,
        pools=pools,
    )


def half_and_half(*accelerators: str) -> Split:
    grants = tuple(LeverGrant(lever=lever, share=0.5, units=1.0) for lever in ("rma", "sbm"))
    pools = tuple(PoolGrants(accelerator=name, usable_units=2.0, grants=grants) for name in accelerators)
    return Split(
        allocation=Allocation(pools=pools, value_s=1.0, mode="program", detail="made by hand"),
        accelerators=accelerators,
        terms=digest_of(LIMITS.levers),
    )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every problem that the allocator is asked to solve."""
    asked: list[object] = []
    solve = allocate_module.allocate

    def counted(problem, *, last):
        asked.append(problem)
        return solve(problem, last=last)

    monkeypatch.setattr(allocate_module, "allocate", counted)
    return asked


def test_it_is_made_every_so_many_ticks_and_stands_in_between(runs):
    split = Split()
    made = []
    for _ in range(9):
        split = resplit(split, facts(pool()), NO_CORRECTIONS, settings=SETTINGS)
        made.append(len(runs))
    assert made == [1, 1, 1, 1, 2, 2, 2, 2, 3]


@pytest.mark.parametrize(
    "pools",
    [
        [pool(), pool("t4")],
        [pool(units=0.0)],
        [pool(noticed=2.0)],
        [pool(memory=2.0)],
        [],
    ],
)
def test_it_is_made_at_once_when_a_pool_appears_or_vanishes_or_falls_to_nothing(runs, pools):
    split = resplit(Split(), facts(pool()), NO_CORRECTIONS, settings=SETTINGS)
    split = resplit(split, facts(*pools), NO_CORRECTIONS, settings=SETTINGS)
    assert (len(runs), split.age_ticks) == (2, 0)
    resplit(split, facts(*pools), NO_CORRECTIONS, settings=SETTINGS)
    assert len(runs) == 2


def test_it_is_made_at_once_when_the_terms_of_a_lever_change(runs):
    split = resplit(Split(), facts(pool()), NO_CORRECTIONS, settings=SETTINGS)
    changed = facts(pool())
    levers = [msgspec.structs.replace(terms, max_share=0.25) for terms in changed.limits.levers]
    changed = msgspec.structs.replace(changed, limits=msgspec.structs.replace(changed.limits, levers=levers))
    split = resplit(split, changed, NO_CORRECTIONS, settings=SETTINGS)
    assert len(runs) == 2
    resplit(split, changed, NO_CORRECTIONS, settings=SETTINGS)
    assert len(runs) == 2


def test_a_part_of_a_pool_taken_back_acts_at_once_without_a_new_split(runs):
    split = resplit(half_and_half("a100"), facts(pool(units=0.5)), NO_CORRECTIONS, settings=SETTINGS)
    assert runs == []
    assert granted(split, facts(pool(units=0.5)))["a100"] == {"rma": 0.25, "sbm": 0.25}


def test_cores_that_go_while_accelerators_stay_act_at_once_too():
    # 4 cores a unit of RMA and 0.5 of SBM: 1 unit each takes 4.5 cores, of which a third is left.
    units = granted(half_and_half("a100"), facts(pool(cpu_cores=1.5)))["a100"]
    assert units == pytest.approx({"rma": 1.0 / 3.0, "sbm": 1.0 / 3.0})


def test_levers_that_are_not_in_the_limits_any_more_have_nothing():
    limits = msgspec.structs.replace(LIMITS, levers=[RMA])
    assert granted(half_and_half("a100"), facts(pool(), limits=limits))["a100"] == {"rma": 1.0}


def test_a_levers_curve_is_the_mean_of_its_units():
    levers = [msgspec.structs.replace(RMA, fits=[fit("a100", 50_000.0), fit("t4", 10_000.0)]), SBM]
    limits = msgspec.structs.replace(LIMITS, levers=levers)
    units = granted(half_and_half("a100", "t4"), facts(pool(), pool("t4", units=6.0), limits=limits))
    supply = supply_of(units, levers, "rma")
    assert supply.units == 4.0
    assert supply.curve_units_per_unit_s == pytest.approx((50_000.0 + 3 * 10_000.0) / 4.0)
    # What SBM has of a pool where it does not run is nothing.
    assert supply_of(units, levers, "sbm").units == 1.0
    assert supply_of(units, levers, "precompute").units == 0.0


def test_cores_and_memory_go_with_their_units_but_for_those_that_miss_cores():
    supply = pool_supply(pool(units=8.0, memory=2.0, noticed=2.0, cpu_cores=16.0), LIMITS.levers)
    assert (supply.usable_units, supply.cpu_cores, supply.memory_gib) == (4.0, 8.0, 32.0)
    starved = pool_supply(pool(units=8.0, missing_cpu=4.0, cpu_cores=16.0), LIMITS.levers)
    assert (starved.usable_units, starved.cpu_cores) == (4.0, 16.0)


def test_the_allocator_is_told_what_was_measured_and_what_upstream_leaves(runs):
    corrections = Corrections(speeds={"rma": 0.5}, most_work_units_s={"rma": 700.0})
    resplit(Split(), facts(pool()), corrections, settings=SETTINGS)
    (problem,) = runs
    rma, sbm = problem.levers
    assert [found.units_per_unit_s for found in rma.terms.fits] == [25_000.0]
    assert (rma.max_work_units_s, sbm.max_work_units_s) == (700.0, None)
    assert sbm.terms == SBM
    assert problem.settings.utilisation == LIMITS.utilisation


@pytest.mark.parametrize("error", [RuntimeError("no licence"), ValueError("what?"), ZeroDivisionError("by zero")])
def test_an_allocator_that_raises_leaves_the_last_split_in_force_and_says_so(monkeypatch, error):
    rig = CellRig(settings=SETTINGS)
    rig.run(30)
    before = rig.target

    def broken(problem, *, last):
        raise error

    monkeypatch.setattr(allocate_module, "allocate", broken)
    rig.run(5)
    rig.pools[0].units /= 2.0
    rig.tick()
    assert rig.snapshots["a100"].allocation == "kept"
    assert str(error) in rig.snapshots["a100"].allocation_detail
    assert rig.target.extra_budget_units_s == pytest.approx(before.extra_budget_units_s / 2.0, rel=0.01)
    monkeypatch.undo()
    rig.run(5)
    assert rig.snapshots["a100"].allocation == "program"


def test_without_a_solver_and_without_a_split_nobody_gets_anything(monkeypatch):
    monkeypatch.setitem(sys.modules, ALLOCATOR, None)
    rig = CellRig()
    rig.run(3)
    assert (rig.extras, rig.target.coverage, rig.target.reason) == (0, 0.0, "no_capacity")
    assert "cannot be asked" in rig.snapshots["a100"].allocation_detail
    assert rig.snapshots["a100"].allocation == "kept"


def test_a_cell_without_levers_needs_no_solver(monkeypatch):
    monkeypatch.setitem(sys.modules, ALLOCATOR, None)
    state, _ = apply(CellState(cell="us-east"), capacity_window(1))
    _, (target, _) = apply(state, latency_window(1))
    assert isinstance(target, CandidateTarget)
    assert target.reason == "rising"


def test_a_utilisation_of_nothing_is_said_and_gives_nothing():
    rig = CellRig(limits=msgspec.structs.replace(LIMITS, utilisation=0.0), pools=[Pool()])
    rig.run(3)
    assert rig.extras == 0
    assert "utilisation" in rig.snapshots["a100"].allocation_detail
