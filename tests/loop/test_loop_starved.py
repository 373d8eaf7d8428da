"""What binds decides who gets what: cores, accelerators, lifetimes, upstream; through ledger, allocator and loops."""

import msgspec
import pytest

from schemas.records import AgedUnits, CellLimits
from tests.loop.cell_rig import LIMITS, RMA, SBM, SPAN, CellRig, Pool, curve, fit, terms
from tests.loop.two_routes import Queue, TwoRoutes

TOP = LIMITS.max_coverage
WIDE = terms("rma", fit("a100", 50_000.0, cpu_cores=4.0), fit("cpu", 500.0), curves=RMA.curves, startup_s=2.0)
POWERFUL = terms("sbm", fit("a100", 40_000.0), curves=SBM.curves, startup_s=300.0)
BOTH = msgspec.structs.replace(LIMITS, levers=[WIDE, POWERFUL])


def cell(*pools: Pool, limits: CellLimits = BOTH, powerful_ms: float = 60.0, **figures) -> CellRig:
    plant = TwoRoutes(
        wide=Queue(lever="rma", speeds={"a100": 50_000.0, "cpu": 500.0}, idle_p99_ms=30.0),
        powerful=Queue(lever="sbm", speeds={"a100": 40_000.0}, idle_p99_ms=powerful_ms),
        **figures,
    )
    return CellRig(plant=plant, pools=list(pools), limits=limits)


def test_without_cores_sbm_takes_the_accelerators_and_rma_gets_none():
    rig = cell(Pool(units=1.0, cpu_cores=0.0))
    rig.run(100)
    assert (rig.units("rma"), rig.bottleneck("rma")) == (0.0, "cpu")
    assert rig.units("sbm") > 0.7
    assert (rig.extras, rig.target.reason, rig.target.extra_budget_units_s) == (0, "no_capacity", 0.0)
    assert rig.target.coverage == pytest.approx(TOP, rel=0.1)


def test_without_accelerators_rma_takes_the_cores_and_sbm_gets_none():
    rig = cell(Pool(accelerator="cpu", units=100.0, cpu_cores=100.0), Pool(units=0.0))
    rig.run(100)
    assert (rig.units("sbm", "cpu"), rig.bottleneck("sbm", "cpu")) == (0.0, "compatibility")
    assert (rig.units("sbm"), rig.bottleneck("sbm")) == (0.0, "accelerator")
    assert rig.units("rma", "cpu") == pytest.approx(100.0)
    # 100 cores x 500/s x 0.7 for 100 requests/s.
    assert rig.extras == pytest.approx(350, abs=0.02 * SPAN)
    assert (rig.target.coverage, rig.target.coverage_reason) == (0.0, "no_capacity")


def test_a_pool_that_does_not_last_is_not_given_to_the_model_that_starts_slowly():
    # Every ten seconds a third of the pool is taken and as much comes anew: nothing gets older than a minute.
    short = [AgedUnits(from_age_s=0, units_micro=2_000_000, taken_micro=666_667)]
    rig = cell(Pool(units=2.0, ages=short))
    rig.run(60)
    assert (rig.units("sbm"), rig.bottleneck("sbm")) == (0.0, "survival")
    assert rig.units("rma") > 0.6
    assert rig.snapshots["a100"].expected_survival_s == pytest.approx(30.0, rel=0.2)
    # The same pool left alone: after some hours old enough, and trusted.
    rig.pools[0].ages = [AgedUnits(from_age_s=14_400, units_micro=2_000_000, taken_micro=0)]
    rig.run(200)
    assert rig.units("sbm") > 0.3
    assert rig.target.coverage > 0.1


def test_where_upstream_is_the_bottleneck_accelerators_go_to_sbm_and_come_back():
    limits = msgspec.structs.replace(BOTH, upstream_limit_ms=100.0)
    # Half a unit: too little for both.
    rig = cell(Pool(units=0.5), limits=limits, powerful_ms=30.0, upstream_p99_ms=40.0)
    rig.run(200)
    before, units = rig.target, (rig.units("rma"), rig.units("sbm"))
    assert (before.reason, before.coverage_reason) == ("capacity", "capacity")
    rig.plant.upstream_p99_ms = 130.0
    assert rig.tick().reason == "upstream"
    seen = [rig.target, *rig.run(100)]
    assert max(target.candidate_target for target in seen) < before.candidate_target
    assert min(target.coverage for target in seen) >= before.coverage - 0.01 * TOP
    assert (rig.extras, rig.target.reason) == (0, "upstream")
    assert rig.bottleneck("rma") == "upstream"
    assert rig.units("rma") < 0.5 * units[0]
    assert rig.units("sbm") > 1.2 * units[1]
    assert rig.target.coverage > 1.2 * before.coverage
    rig.plant.upstream_p99_ms = 40.0
    rig.run(200)
    assert rig.extras == pytest.approx(before.candidate_target - 100, abs=0.02 * SPAN)
    assert rig.target.coverage == pytest.approx(before.coverage, abs=0.02 * TOP)


def test_a_third_lever_may_have_units_that_are_in_nobodys_target():
    ahead = terms("precompute", fit("a100", 10_000.0), curves=curve(500.0, 20_000.0), max_share=0.5)
    rig = cell(Pool(units=2.0), limits=msgspec.structs.replace(BOTH, levers=[WIDE, POWERFUL, ahead]))
    rig.run(20)
    assert rig.units("precompute") == pytest.approx(1.0, rel=0.01)
    assert rig.units("rma") + rig.units("sbm") <= 1.0 + 1e-6
    assert rig.target.extra_budget_units_s == pytest.approx(rig.units("rma") * 50_000.0 * 0.7, rel=0.02)
