"""Units of a pool by lever: splits, starts, what is taken back, what cores and memory are enough for."""

import pytest

from ops.twin.grants import Fit, PoolGrants, fits_of
from schemas.records import AcceleratorFit, CellLimits, LeverTerms

RMA = Fit(units_per_unit_s=20_000.0, cpu_cores_per_unit=4.0, memory_bytes_per_unit=1, startup_s=0.0)
SBM = Fit(units_per_unit_s=20_000.0, cpu_cores_per_unit=0.0, memory_bytes_per_unit=10, startup_s=60.0)


def pool(usable: float = 8.0) -> PoolGrants:
    return PoolGrants({"rma": RMA, "sbm": SBM}, usable=usable)


def test_a_lever_works_after_its_start_up():
    grants = pool()
    grants.split({"rma": 0.25, "sbm": 0.75}, 100.0)
    grants.mature(100.0)
    assert (grants.ready("rma"), grants.ready("sbm")) == (2.0, 0.0)
    grants.mature(159.9)
    assert grants.ready("sbm") == 0.0
    grants.mature(160.0)
    assert (grants.ready("sbm"), grants.held("sbm")) == (6.0, 6.0)


def test_what_is_taken_back_is_taken_from_all_at_once_and_what_comes_starts_anew():
    grants = pool()
    grants.split({"rma": 0.5, "sbm": 0.5}, 0.0)
    grants.mature(60.0)
    grants.change(-2.0, 61.0)
    assert [grants.ready("rma"), grants.ready("sbm")] == pytest.approx([3.0, 3.0])
    grants.change(2.0, 62.0)
    grants.mature(63.0)
    assert grants.ready("rma") == pytest.approx(4.0)
    assert [grants.ready("sbm"), grants.held("sbm")] == pytest.approx([3.0, 4.0])
    grants.mature(122.0)
    assert grants.ready("sbm") == pytest.approx(4.0)
    grants.change(-8.0, 130.0)
    assert (grants.ready("rma"), grants.held("sbm"), grants.usable) == (0.0, 0.0, 0.0)


def test_units_that_move_from_one_lever_to_the_other_start_there():
    grants = pool()
    grants.split({"rma": 1.0}, 0.0)
    grants.mature(0.0)
    grants.split({"rma": 0.5, "sbm": 0.5}, 10.0)
    grants.mature(10.0)
    assert (grants.ready("rma"), grants.ready("sbm"), grants.held("sbm")) == (4.0, 0.0, 4.0)


def test_the_same_split_again_restarts_nothing():
    grants = pool()
    for now_s in (0.0, 30.0, 60.0):
        grants.split({"sbm": 1.0}, now_s)
        grants.mature(now_s)
    assert grants.ready("sbm") == 8.0


def test_short_cores_starve_only_who_needs_them():
    grants = pool()
    grants.split({"rma": 0.5, "sbm": 0.5}, 0.0)
    grants.mature(60.0)
    assert grants.working(cores=4.0, memory_bytes=1e12) == {"rma": pytest.approx(1.0), "sbm": 4.0}
    assert grants.working(cores=0.0, memory_bytes=1e12)["rma"] == 0.0
    short = grants.working(cores=1e9, memory_bytes=22.0)
    assert [short["rma"], short["sbm"]] == pytest.approx([2.0, 2.0])


def test_without_terms_rma_runs_everywhere_and_with_terms_only_where_it_fits():
    bare = CellLimits(base_candidates=64, max_candidates=256, latency_limit_ms=100.0, units_per_unit_s=30_000.0)
    assert {pool_: fit.units_per_unit_s for pool_, fit in fits_of(bare, ["a", "b"])["rma"].items()} == {
        0: 30_000.0,
        1: 30_000.0,
    }
    terms = LeverTerms(lever="sbm", fits=[AcceleratorFit(accelerator="b", units_per_unit_s=10.0)], startup_s=7.0)
    fits = fits_of(
        CellLimits(base_candidates=64, max_candidates=256, latency_limit_ms=100.0, levers=[terms]), ["a", "b"]
    )
    assert list(fits) == ["sbm"]
    assert fits["sbm"] == {1: Fit(10.0, 0.0, 0, 7.0)}
