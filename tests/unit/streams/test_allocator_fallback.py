"""What stands in for the program: the last split within today's bounds, the rule, and which of them it says."""

import dataclasses
import math
import random

import msgspec
import numpy as np
import pytest

from streams.control.allocator.allocate import allocate
from streams.control.allocator.allocation import Allocation
from streams.control.allocator.problem import AllocatorSettings, Problem
from streams.control.allocator.solver import LinearProgram, Solution, UnsolvedError, solve
from tests.unit.streams.allocator_makers import LEVERS, PLAIN, Bounds, curve, fit, option, pool, random_problem

CURVE = [curve([(1e3, 1e3)])]


def failing(_: LinearProgram) -> Solution:
    raise UnsolvedError("HiGHS: Iteration limit reached")


def two_levers(*, units: float = 10.0, cpu: float = 20.0, **terms) -> Problem:
    rma = option("rma", [fit("a", 10.0, cpu=4.0)], [curve([(30.0, 60.0)])])
    sbm = option("sbm", [fit("a", 10.0)], [curve([(30.0, 30.0)])], **terms)
    return Problem(pools=(pool("a", units, cpu=cpu),), levers=(rma, sbm), settings=PLAIN)


def shares(split: Allocation) -> tuple[float, float]:
    return split.share("a", "rma"), split.share("a", "sbm")


def test_a_solver_that_fails_leaves_the_last_split_and_says_why():
    last = allocate(two_levers(), last=None)
    split = allocate(two_levers(), last=last, solver=failing)
    assert (split.mode, shares(split)) == ("kept", shares(last))
    assert split.detail == "HiGHS: Iteration limit reached; the last split within today's bounds"
    assert split.pools[0].prices == ()


def test_a_solver_that_fails_at_first_leaves_the_rule():
    split = allocate(two_levers(), last=None, solver=failing)
    # Alike as far as each can run there (5 of 10 units have the cores), and what is left to who can use it.
    assert (split.mode, shares(split)) == ("rule", (0.5, 0.5))
    assert split.detail == "HiGHS: Iteration limit reached; there is no last split"


def test_the_limit_of_iterations_is_such_a_failure():
    problem = two_levers()
    split = allocate(problem, last=None, solver=lambda program: solve(program, max_iterations=0))
    assert split.mode == "rule"
    assert "Iteration limit" in split.detail


@pytest.mark.parametrize("factor", [5.0, -1.0, 0.0])
def test_a_solver_that_lies_is_not_believed(factor):
    def lying(program: LinearProgram) -> Solution:
        found = solve(program)
        return Solution(columns_N=factor * found.columns_N, row_duals_M=found.row_duals_M)

    split = allocate(two_levers(floor_share=0.2), last=None, solver=lying)
    assert split.mode == "rule"
    assert "the solver's split breaks the " in split.detail


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0, 1e13])
def test_absurd_figures_keep_the_last_split(figure):
    problem = two_levers()
    last = allocate(problem, last=None)
    (supply,), (rma, sbm) = problem.pools, problem.levers
    absurd = [
        ("survival of sbm on a", dataclasses.replace(supply, survives={"sbm": figure}), rma),
        ("max_work_units_s of rma", supply, dataclasses.replace(rma, max_work_units_s=figure)),
        ("in all", supply, dataclasses.replace(rma, curves=(curve([(30.0, figure)]),))),
        ("in all", supply, dataclasses.replace(rma, curves=(curve([(30.0, 60.0)], error_s=figure),))),
    ]
    for what, of_pool, of_rma in absurd:
        split = allocate(dataclasses.replace(problem, pools=(of_pool,), levers=(of_rma, sbm)), last=last)
        assert split.mode == "kept"
        assert what in split.detail
        assert split.detail.startswith("absurd: ")
        assert split.share("a", "rma") == last.share("a", "rma")
        assert 0.0 <= split.value_s <= 1e12


def test_a_pool_of_no_number_of_units_gives_none():
    problem = two_levers()
    nan = dataclasses.replace(problem.pools[0], usable_units=math.nan)
    split = allocate(dataclasses.replace(problem, pools=(nan,)), last=allocate(problem, last=None))
    assert (split.mode, split.pools[0].grants) == ("kept", ())


def test_stale_figures_keep_the_last_split():
    problem = two_levers()
    last = allocate(problem, last=None)
    split = allocate(dataclasses.replace(problem, stale="no capacity window for 3 windows"), last=last)
    assert (split.mode, shares(split)) == ("kept", shares(last))
    assert split.detail.startswith("no capacity window for 3 windows; ")


def test_a_kept_split_follows_the_pool_and_what_is_beside_it():
    last = allocate(two_levers(), last=None)
    assert shares(last) == (0.3, 0.3)
    halved = allocate(two_levers(units=20.0, cpu=12.0), last=last, solver=failing)
    # The shares stand, but for six units of RMA there are cores for three.
    assert [grant.units for grant in halved.pools[0].grants] == pytest.approx([3.0, 6.0], abs=2e-5)


def test_a_kept_split_gives_an_unknown_pool_by_the_rule():
    last = allocate(two_levers(), last=None)
    problem = two_levers()
    new = option("sbm", [fit("a", 10.0), fit("b", 10.0)], CURVE)
    wider = dataclasses.replace(problem, pools=(*problem.pools, pool("b", 4.0)), levers=(problem.levers[0], new))
    split = allocate(wider, last=last, solver=failing)
    assert (shares(split), split.share("b", "sbm")) == (shares(last), 1.0)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("with_last", [True, False])
def test_what_stands_in_keeps_every_bound_floors_too(seed, with_last):
    dice = random.Random(seed)
    last = None
    if with_last:
        last = allocate(random_problem(dice, num_pools=dice.randint(1, 5), num_levers=3), last=None)
    problem = random_problem(dice, num_pools=dice.randint(1, 5), num_levers=3)
    bounds = Bounds(problem)
    split = allocate(problem, last=last, solver=failing)
    assert split.mode == ("kept" if with_last else "rule")
    usable = math.fsum(supply.usable_units for supply in problem.pools)
    smallest_floor = min((-b for b in bounds.b_H if b < 0.0), default=1.0)
    assert bounds.most_broken(bounds.units(split)) <= max(1e-9, 1e-6 * usable / smallest_floor)


def test_without_any_curve_there_is_the_rule():
    levers = tuple(option(lever, [fit("a", 10.0)], []) for lever in LEVERS)
    problem = Problem(pools=(pool("a", 9.0, survives={"sbm": 0.6}),), levers=levers, settings=PLAIN)
    split = allocate(problem, last=None)
    assert split.mode == "rule"
    assert split.detail == "no lever has a value curve that earns anything"
    # In proportion to what outlives the start: 1, 0.6 and 1 of 2.6.
    got = [split.share("a", lever) for lever in LEVERS]
    assert got == pytest.approx([1.0 / 2.6, 0.6 / 2.6, 1.0 / 2.6], abs=2e-6)


def test_the_rule_starts_no_large_model_on_a_burst_and_leaves_nothing_idle_for_a_cap():
    rma = option("rma", [fit("a", 10.0)], [], max_share=0.7)
    sbm = option("sbm", [fit("a", 10.0)], [])
    short = Problem(pools=(pool("a", 10.0, survives={"sbm": 0.1}),), levers=(rma, sbm), settings=AllocatorSettings())
    assert shares(allocate(short, last=None)) == (0.7, 0.0)
    long = dataclasses.replace(short, pools=(pool("a", 10.0),))
    assert shares(allocate(long, last=None)) == (0.5, 0.5)
    capped = dataclasses.replace(long, levers=(dataclasses.replace(rma, max_work_units_s=1.33), sbm))
    assert shares(allocate(capped, last=None)) == pytest.approx((0.02, 0.98), abs=2e-6)


def test_curves_of_the_terms_stand_until_measured_ones_are_there():
    declared = option("rma", [fit("a", 10.0)], [])
    declared = dataclasses.replace(declared, terms=msgspec.structs.replace(declared.terms, curves=CURVE))
    problem = Problem(pools=(pool("a", 10.0),), levers=(declared,), settings=PLAIN)
    assert allocate(problem, last=None).value_s == 100.0
    measured = dataclasses.replace(declared, curves=(curve([(1e3, 2e3)]),))
    assert allocate(dataclasses.replace(problem, levers=(measured,)), last=None).value_s == 200.0


def test_a_cell_with_nothing_has_an_empty_split():
    assert allocate(Problem(pools=(), levers=()), last=None).pools == ()
    nothing = allocate(two_levers(units=0.0, cpu=0.0), last=None)
    assert (nothing.mode, nothing.value_s, nothing.pools[0].grants) == ("program", 0.0, ())


@pytest.mark.parametrize(
    ("figures", "name"),
    [
        ({"utilisation": 0.0}, "utilisation"),
        ({"utilisation": math.nan}, "utilisation"),
        ({"reserve_share": 1.0}, "reserve_share"),
        ({"hysteresis_share": -0.1}, "hysteresis_share"),
        ({"confidence": math.inf}, "confidence"),
        ({"lost_start_cost": -1.0}, "lost_start_cost"),
    ],
)
def test_settings_that_could_not_be_planned_with_are_refused(figures, name):
    with pytest.raises(ValueError, match=name):
        AllocatorSettings(**figures)


def test_a_pool_or_lever_that_is_there_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        Problem(pools=(pool("a", 1.0), pool("a", 2.0)), levers=())
    rma = option("rma", [fit("a", 1.0)], [])
    with pytest.raises(ValueError, match="twice"):
        Problem(pools=(), levers=(rma, rma))


def test_the_solver_is_silent_and_gives_the_same_bytes(capfd):
    program = LinearProgram(
        costs_N=np.array([-1.0, -2.0]),
        uppers_N=np.array([3.0, np.inf]),
        row_lowers_M=np.array([-np.inf]),
        row_uppers_M=np.array([4.0]),
        starts_M1=np.array([0, 2], dtype=np.int32),
        columns_E=np.array([0, 1], dtype=np.int32),
        coefficients_E=np.array([1.0, 1.0]),
    )
    found = solve(program)
    assert found.columns_N.tolist() == [0.0, 4.0]
    assert found.row_duals_M.tolist() == [-2.0]
    assert solve(program).columns_N.tobytes() == found.columns_N.tobytes()
    assert capfd.readouterr() == ("", "")


def test_a_program_without_an_optimum_is_said_to_have_none():
    endless = LinearProgram(
        costs_N=np.array([-1.0]),
        uppers_N=np.array([np.inf]),
        row_lowers_M=np.array([0.0]),
        row_uppers_M=np.array([np.inf]),
        starts_M1=np.array([0, 1], dtype=np.int32),
        columns_E=np.array([0], dtype=np.int32),
        coefficients_E=np.array([1.0]),
    )
    with pytest.raises(UnsolvedError, match="nbounded"):
        solve(endless)
