"""The split against brute force; its bounds, its prices, and what more capacity does to it."""

import dataclasses
import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import AcceleratorFit, CurvePoint, LeverTerms, ValueCurve
from streams.control.allocator.allocate import SHARE_STEPS, allocate
from streams.control.allocator.allocation import Allocation
from streams.control.allocator.problem import AllocatorSettings, LeverOption, PoolSupply, Problem
from tests.unit.streams.allocator_makers import LEVERS, PLAIN, Bounds, curve, fit, option, pool, random_problem

# Shares are rounded down to millionths of a pool, and ties cost as much of what all levers could earn.
CLOSE = 2e-5
STEP = 1.0 / SHARE_STEPS


@pytest.mark.parametrize("seed", range(40))
def test_a_cold_start_earns_what_brute_force_finds(seed):
    dice = random.Random(seed)
    problem = random_problem(dice, num_pools=dice.choice([1, 2]), num_levers=2, num_segments=dice.choice([1, 2]))
    bounds = Bounds(problem)
    split = allocate(problem, last=None)
    assert split.mode == "program", split.detail
    assert split.value_s == pytest.approx(bounds.best_value(), rel=CLOSE)
    assert split.value_s == pytest.approx(bounds.value(bounds.units(split)), rel=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_a_split_keeps_every_bound(seed):
    dice = random.Random(seed)
    problem = random_problem(dice, num_pools=dice.randint(1, 6), num_levers=3, num_segments=2, num_points=3)
    bounds = Bounds(problem)
    split = allocate(problem, last=None)
    units_N = bounds.units(split)
    usable = math.fsum(supply.usable_units for supply in problem.pools)
    for lever in problem.levers:
        held = sum(u for u, (_, mine, _) in zip(units_N, bounds.places, strict=True) if mine is lever)
        assert held <= lever.terms.max_share * usable * (1.0 + 1e-9)
    # Floors are a millionth of each pool short at most.
    smallest_floor = min((-b for b in bounds.b_H if b < 0.0), default=1.0)
    assert bounds.most_broken(units_N) <= max(3e-7, STEP * usable / smallest_floor)
    for grants in split.pools:
        assert math.fsum(grant.share for grant in grants.grants) <= 1.0 + 1e-12


@pytest.mark.parametrize("seed", range(40))
def test_more_of_a_resource_never_earns_less(seed):
    dice = random.Random(seed)
    problem = random_problem(dice, num_pools=3, num_levers=3, num_segments=2, num_points=3, floors=False)
    before = allocate(problem, last=None).value_s
    for number, supply in enumerate(problem.pools):
        for name in ("usable_units", "cpu_cores", "memory_gib"):
            more = dataclasses.replace(supply, **{name: getattr(supply, name) * dice.choice([1.001, 1.2, 3.0])})
            pools = (*problem.pools[:number], more, *problem.pools[number + 1 :])
            after = allocate(dataclasses.replace(problem, pools=pools), last=None).value_s
            assert after >= before * (1.0 - CLOSE), (supply.accelerator, name)


@pytest.mark.parametrize("seed", range(40))
def test_more_hosts_of_a_kind_never_earn_less_floors_or_not(seed):
    dice = random.Random(seed)
    problem = random_problem(dice, num_pools=3, num_levers=3, num_segments=2, num_points=3)
    before = allocate(problem, last=None).value_s
    for number, supply in enumerate(problem.pools):
        factor = dice.choice([1.001, 1.2, 3.0])
        more = dataclasses.replace(
            supply,
            usable_units=supply.usable_units * factor,
            cpu_cores=supply.cpu_cores * factor,
            memory_gib=supply.memory_gib * factor,
        )
        pools = (*problem.pools[:number], more, *problem.pools[number + 1 :])
        assert allocate(dataclasses.replace(problem, pools=pools), last=None).value_s >= before * (1.0 - CLOSE)


@pytest.mark.parametrize("seed", range(20))
def test_a_price_is_what_one_more_of_the_resource_earns(seed):
    problem = random_problem(random.Random(seed), num_pools=2, num_levers=2, num_segments=2, num_points=3)
    split = allocate(problem, last=None)
    by_brute_force = Bounds(problem).best_value()
    for number, supply in enumerate(problem.pools):
        for resource, name in (("accelerator", "usable_units"), ("cpu", "cpu_cores"), ("memory", "memory_gib")):
            step = 1e-4 * getattr(supply, name)
            more = dataclasses.replace(supply, **{name: getattr(supply, name) + step})
            pools = (*problem.pools[:number], more, *problem.pools[number + 1 :])
            rise = (Bounds(dataclasses.replace(problem, pools=pools)).best_value() - by_brute_force) / step
            grants = split.pool(supply.accelerator)
            assert grants is not None
            price = next(price.value_s for price in grants.prices if price.resource == resource)
            noise = 2e-5 * split.value_s / getattr(supply, name)
            assert price == pytest.approx(max(0.0, rise), rel=2e-3, abs=noise), (supply.accelerator, resource)


def test_cores_have_a_price_where_there_are_none():
    rma = option("rma", [fit("a", 10.0, cpu=2.0)], [curve([(1_000.0, 1_000.0)])])
    split = allocate(Problem(pools=(pool("a", 10.0, cpu=0.0),), levers=(rma,), settings=PLAIN), last=None)
    (grants,) = split.pools
    assert grants.grants == ()
    assert {price.resource: price.value_s for price in grants.prices} == {"accelerator": 0.0, "cpu": 5.0, "memory": 0.0}
    assert split.detail == "worth 0/s; bound by cpu of a"


def test_the_order_of_a_problem_is_of_no_meaning():
    dice = random.Random(1)
    problem = random_problem(dice, num_pools=4, num_levers=3, num_segments=3)
    turned = Problem(
        pools=problem.pools[::-1],
        levers=tuple(dataclasses.replace(lever, curves=lever.curves[::-1]) for lever in problem.levers[::-1]),
        settings=problem.settings,
    )
    said = msgspec.json.encode(allocate(problem, last=None))
    assert msgspec.json.encode(allocate(turned, last=None)) == said
    assert msgspec.json.encode(allocate(problem, last=None)) == said
    assert msgspec.json.decode(said, type=Allocation) == allocate(problem, last=None)


def test_of_equal_splits_the_first_levers_have_the_first_pools():
    same = [curve([(1e3, 1e3)])]
    fits = [fit(name, 10.0) for name in "dcba"]
    levers = tuple(option(lever, fits, same, max_share=0.5) for lever in ("precompute", "sbm", "rma"))
    problem = Problem(pools=tuple(pool(name, 5.0) for name in "dcba"), levers=levers, settings=PLAIN)
    split = allocate(problem, last=None)
    got = {grants.accelerator: [(grant.lever, grant.share) for grant in grants.grants] for grants in split.pools}
    assert got == {"a": [("rma", 1.0)], "b": [("rma", 1.0)], "c": [("sbm", 1.0)], "d": [("sbm", 1.0)]}


def test_units_that_earn_nothing_are_not_given_out():
    rma = option("rma", [fit("a", 10.0)], [curve([(50.0, 50.0)])])
    split = allocate(Problem(pools=(pool("a", 10.0),), levers=(rma,), settings=PLAIN), last=None)
    assert split.share("a", "rma") == 0.5
    assert split.detail.endswith("bound by nothing: more would earn nothing")


def test_units_that_earn_nothing_any_more_stay_until_they_are_wanted():
    settings = dataclasses.replace(PLAIN, hysteresis_share=0.05)

    def seen(rma_work: float, sbm_work: float) -> Problem:
        rma = option("rma", [fit("a", 10.0)], [curve([(rma_work, 100.0)])])
        sbm = option("sbm", [fit("a", 10.0)], [curve([(sbm_work, 50.0)])])
        return Problem(pools=(pool("a", 10.0),), levers=(rma, sbm), settings=settings)

    first = allocate(seen(80.0, 20.0), last=None)
    assert (first.share("a", "rma"), first.share("a", "sbm")) == (0.8, 0.2)
    idle = allocate(seen(40.0, 20.0), last=first)
    assert (idle.share("a", "rma"), idle.share("a", "sbm")) == (0.8, 0.2)
    wanted = allocate(seen(40.0, 40.0), last=idle)
    assert (wanted.share("a", "rma"), wanted.share("a", "sbm")) == (0.6, 0.4)


def test_where_accelerators_and_cores_bind_together_the_price_is_the_accelerators():
    rma = option("rma", [fit("a", 10.0, cpu=2.0)], [curve([(200.0, 200.0)])])
    # Another lever, so that cores could bind at all.
    sbm = option("sbm", [fit("a", 1.0, cpu=4.0)], [curve([(200.0, 20.0)])])
    split = allocate(Problem(pools=(pool("a", 10.0, cpu=20.0),), levers=(rma, sbm), settings=PLAIN), last=None)
    assert split.share("a", "rma") == 1.0
    assert {price.resource: price.value_s for price in split.pools[0].prices} == {
        "accelerator": 10.0,
        "cpu": 0.0,
        "memory": 0.0,
    }


# A share that falls just short of a step is rounded up to it, but not beyond a cap.
@pytest.mark.parametrize("max_share", [0.6, 0.60000095])
def test_the_cap_holds_for_a_lever_that_is_alone(max_share):
    rma = option("rma", [fit("a", 10.0)], [curve([(500.0, 500.0)])], max_share=max_share)
    split = allocate(Problem(pools=(pool("a", 10.0),), levers=(rma,), settings=PLAIN), last=None)
    assert split.share("a", "rma") == 0.6
    assert "cap of rma" in split.detail


def test_a_lever_that_earns_nothing_keeps_its_floor_where_it_costs_least():
    rma = option("rma", [fit("slow", 1.0), fit("fast", 10.0)], [curve([(1e3, 1e3)])])
    sbm = option("sbm", [fit("slow", 1.0), fit("fast", 1.0)], [], floor_share=0.1)
    split = allocate(
        Problem(pools=(pool("slow", 10.0), pool("fast", 10.0)), levers=(rma, sbm), settings=PLAIN), last=None
    )
    assert (split.share("slow", "sbm"), split.share("fast", "sbm")) == (0.2, 0.0)
    assert "floor of sbm" in split.detail


def test_floors_beyond_the_whole_are_divided_by_their_sum():
    levers = tuple(option(lever, [fit("a", 10.0)], [curve([(1.0, 1.0)])], floor_share=0.8) for lever in ("rma", "sbm"))
    split = allocate(Problem(pools=(pool("a", 10.0),), levers=levers, settings=PLAIN), last=None)
    assert (split.share("a", "rma"), split.share("a", "sbm")) == (0.5, 0.5)


def test_work_that_cannot_be_used_earns_nothing_and_its_units_go_elsewhere():
    rma = option("rma", [fit("a", 10.0)], [curve([(1e3, 2e3)])], max_work_units_s=30.0, floor_share=0.5)
    sbm = option("sbm", [fit("a", 10.0)], [curve([(1e3, 1e3)])])
    split = allocate(Problem(pools=(pool("a", 10.0),), levers=(rma, sbm), settings=PLAIN), last=None)
    assert (split.share("a", "rma"), split.share("a", "sbm")) == (0.3, 0.7)
    assert "useful work of rma" in split.detail


def test_a_lever_that_is_off_gets_nothing_and_needs_no_floor():
    rma = option("rma", [fit("a", 10.0)], [curve([(1e3, 2e3)])], floor_share=0.5, enabled=False)
    sbm = option("sbm", [fit("a", 10.0)], [curve([(1e3, 1e3)])])
    split = allocate(Problem(pools=(pool("a", 10.0),), levers=(rma, sbm), settings=PLAIN), last=None)
    assert (split.share("a", "rma"), split.share("a", "sbm")) == (0.0, 1.0)


def test_the_reserve_asks_for_more_units_for_the_same_work():
    rma = option("rma", [fit("a", 10.0)], [curve([(40.0, 40.0)])])
    settings = dataclasses.replace(PLAIN, utilisation=0.8, reserve_share=0.2)
    split = allocate(Problem(pools=(pool("a", 10.0),), levers=(rma,), settings=settings), last=None)
    assert split.share("a", "rma") == pytest.approx(40.0 / (10.0 * 0.8 * 0.8) / 10.0)


def test_an_uncertain_curve_counts_at_its_lower_bound():
    sure = option("rma", [fit("a", 10.0)], [curve([(100.0, 90.0)])])
    unsure = option("sbm", [fit("a", 10.0)], [curve([(100.0, 100.0)], error_s=10.0)])
    problem = Problem(pools=(pool("a", 10.0),), levers=(sure, unsure), settings=PLAIN)
    assert allocate(problem, last=None).share("a", "sbm") == 1.0
    careful = dataclasses.replace(problem, settings=dataclasses.replace(PLAIN, confidence=1.645))
    assert allocate(careful, last=None).share("a", "rma") == 1.0


FIGURES = st.one_of(
    st.sampled_from([1.0, 7.0, 1e6, 1e12, 0.0, 1e-9, 1e-300, 5e-324]), st.floats(min_value=0.0, max_value=1e12)
)
SHARES = st.one_of(st.sampled_from([1.0, 0.3, 0.0, 1e-12]), st.floats(min_value=0.0, max_value=1.0))


@st.composite
def wild_problems(draw):
    names = [f"kind-{number}" for number in range(draw(st.sampled_from([2, 3, 1, 0])))]
    pools = tuple(
        PoolSupply(
            accelerator=name,
            usable_units=draw(FIGURES),
            cpu_cores=draw(FIGURES),
            memory_gib=draw(FIGURES),
            survives={lever: draw(SHARES) for lever in LEVERS if draw(st.booleans())},
        )
        for name in names
    )
    levers = []
    for lever in LEVERS[: draw(st.sampled_from([3, 2, 1, 0]))]:
        fits = [
            AcceleratorFit(
                accelerator=name,
                units_per_unit_s=draw(FIGURES),
                cpu_cores_per_unit=draw(FIGURES),
                memory_bytes_per_unit=draw(st.sampled_from([0, 1, GIB, 2**62])),
            )
            for name in names
            if draw(st.sampled_from([True, True, False]))
        ]
        works = sorted({work for work in draw(st.lists(FIGURES, min_size=1, max_size=3)) if work > 0.0})
        points = [
            CurvePoint(work_units_s=work, value_s=draw(FIGURES), error_s=draw(st.sampled_from([0.0, 1.0, 1e12])))
            for work in works
        ]
        top, floor = draw(SHARES), draw(SHARES)
        terms = LeverTerms(lever=lever, fits=fits, max_share=top, floor_share=min(top, floor))
        levers.append(
            LeverOption(
                terms=terms,
                curves=(ValueCurve(segment="all", points=points),),
                enabled=draw(st.sampled_from([True, True, True, False])),
                max_work_units_s=draw(st.sampled_from([None, None, 0.0, 1e-9, 1e6])),
            )
        )
    return Problem(pools=pools, levers=tuple(levers), settings=AllocatorSettings())


GIB = 1 << 30


@settings(max_examples=300, deadline=None)
@given(first=wild_problems(), second=wild_problems())
def test_there_is_always_a_split_within_the_bounds(first, second):
    last = None
    for problem in (first, second):
        split = allocate(problem, last=last)
        usable = math.fsum(supply.usable_units for supply in problem.pools)
        assert 0.0 <= split.value_s <= 1e12
        for supply, grants in zip(problem.pools, split.pools, strict=True):
            assert math.fsum(grant.units for grant in grants.grants) <= supply.usable_units * (1.0 + 1e-9)
        for lever in problem.levers:
            held = math.fsum(
                grant.units for grants in split.pools for grant in grants.grants if grant.lever == lever.terms.lever
            )
            assert held <= lever.terms.max_share * usable * (1.0 + 1e-9)
            assert lever.enabled or held == 0.0
        # What goes into a state must come out of it again.
        assert msgspec.json.decode(msgspec.json.encode(split), type=Allocation) == split
        last = split
