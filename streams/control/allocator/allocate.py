"""One cell's split. Pure and total: whatever the figures, there is a split within today's bounds, and it says how made.

The order in which it is looked for:

1. figures that are stale or no quantities: the last split, kept; without one, the rule;
2. no lever has a curve that earns anything: the rule;
3. the program; with a last split that the best one would take units from, the program again, with the anchor;
4. the solver fails, or what it found breaks a bound: as 1.

Shares are rounded down to millionths of a pool (``SHARE_STEPS``) and prices to ``PRICE_DIGITS`` digits, so that builds
of the solver that differ in the last bits say the same. So caps are kept exactly, resources within ``LOOSE``, and
floors within a millionth of each pool.
"""

import math

from schemas.records import ResourcePrice
from streams.control.allocator.allocation import Allocation, LeverGrant, Mode, PoolGrants
from streams.control.allocator.hysteresis import anchored, bonuses, kept
from streams.control.allocator.market import RESOURCES, Market, Units, market_of
from streams.control.allocator.problem import MAX_QUANTITY, Problem, absurdity
from streams.control.allocator.program import Optimum, Stay, optimum, prices
from streams.control.allocator.rule import ruled
from streams.control.allocator.solver import Solver, UnsolvedError, solve

SHARE_STEPS = 1_000_000
# Of a step: a share that misses a whole step only because others had ``LOOSE`` more room is that step.
ROUNDING = 0.1
FLOAT_ERROR = 1e-12
PRICE_DIGITS = 4
# A smaller price, as a share of what the cell earns per unit of the resource, is the solver's noise.
NO_PRICE = 1e-5
# By how much a split may break a bound, as a share of it, before its solver is not believed.
BELIEVED_SHARE = 1e-5
MAX_NAMED = 6
MAX_DETAIL = 4_000


def allocate(problem: Problem, *, last: Allocation | None, solver: Solver = solve) -> Allocation:
    """The split of one cell; ``last`` is the one in force, None on a cold start, which has no hysteresis."""
    market = market_of(problem)
    absurd = absurdity(problem)
    if problem.stale or absurd is not None:
        return _without_program(market, last, why=problem.stale or f"absurd: {absurd}")
    if not any(market.pieces):
        return _said(market, ruled(market), mode="rule", detail="no lever has a value curve that earns anything")
    try:
        best = optimum(market, solver=solver)
        units = _settled(market, best, last, problem, solver)
    except UnsolvedError as error:
        return _without_program(market, last, why=str(error))
    broken = _broken(market, best.units) or _broken(market, units)
    if broken is not None:
        return _without_program(market, last, why=f"the solver's split breaks {broken}")
    return _said(market, units, mode="program", detail=_detail(market, best, units), best=best)


def _settled(market: Market, best: Optimum, last: Allocation | None, problem: Problem, solver: Solver) -> Units:
    """The split to go to from the last one."""
    share = problem.settings.hysteresis_share
    if last is None or share <= 0.0:
        return best.units
    anchor = anchored(market, last)
    # A step of a share is no move.
    taken = any(
        mine < before - market.supplies[place.pool][0] / SHARE_STEPS
        for mine, before, place in zip(best.units, anchor, market.places, strict=True)
    )
    if not taken:
        return best.units
    work_prices = [best.rise("work", lever) for lever in range(len(market.levers))]
    stay = Stay(units=anchor, bonuses=bonuses(market, work_prices=work_prices, share=share))
    return optimum(market, solver=solver, stay=stay).units


def _without_program(market: Market, last: Allocation | None, *, why: str) -> Allocation:
    if last is None:
        return _said(market, ruled(market), mode="rule", detail=f"{why}; there is no last split")
    return _said(market, kept(market, last), mode="kept", detail=f"{why}; the last split within today's bounds")


def _broken(market: Market, units: Units) -> str | None:
    """The first bound that a split breaks, or None: no solver is believed unseen."""
    for pool, accelerator in enumerate(market.accelerators):
        for number, resource in enumerate(RESOURCES):
            if not market.used(units, pool, number) <= market.supplies[pool][number] * (1.0 + BELIEVED_SHARE):
                return f"the {resource} of {accelerator}"
    for number, lever in enumerate(market.levers):
        held = market.lever_units(units, number)
        if not held <= market.caps[number] * (1.0 + BELIEVED_SHARE):
            return f"the cap of {lever}"
        if not held >= market.floors[number] * (1.0 - BELIEVED_SHARE):
            return f"the floor of {lever}"
    return None


def _said(market: Market, units: Units, *, mode: Mode, detail: str, best: Optimum | None = None) -> Allocation:
    """The split in rounded shares, and what these are worth."""
    step_counts = _steps(market, units)
    rounded = _in_units(market, step_counts)
    value_s = min(market.value_s(rounded), MAX_QUANTITY)
    priced = prices(market, best) if best is not None else None
    pools = tuple(
        PoolGrants(
            accelerator=accelerator,
            usable_units=market.supplies[pool][0],
            grants=tuple(
                LeverGrant(
                    lever=market.levers[market.places[at].lever],
                    share=step_counts[at] / SHARE_STEPS,
                    units=rounded[at],
                )
                for at in market.by_pool[pool]
                if step_counts[at] > 0
            ),
            prices=_rounded_prices(market, pool, priced[pool], value_s) if priced is not None else (),
        )
        for pool, accelerator in enumerate(market.accelerators)
    )
    return Allocation(pools=pools, value_s=value_s, mode=mode, detail=detail[:MAX_DETAIL])


def _steps(market: Market, units: Units) -> list[int]:
    """Share of each place in steps, rounded down: never more than all of a pool, nor than the cap of a lever."""
    step_counts = [0] * len(units)
    for pool, own in enumerate(market.by_pool):
        usable, left = market.supplies[pool][0], SHARE_STEPS
        for at in own:
            if usable > 0.0:
                step_counts[at] = min(left, math.floor(max(0.0, units[at]) / usable * SHARE_STEPS + ROUNDING))
                left -= step_counts[at]
    for lever, own in enumerate(market.by_lever):
        cap = market.caps[lever] * (1.0 + FLOAT_ERROR)
        for at in own:
            if market.lever_units(_in_units(market, step_counts), lever) > cap and step_counts[at] > 0:
                step_counts[at] -= 1
    return step_counts


def _in_units(market: Market, step_counts: list[int]) -> Units:
    return [
        steps / SHARE_STEPS * market.supplies[place.pool][0]
        for steps, place in zip(step_counts, market.places, strict=True)
    ]


def _rounded_prices(market: Market, pool: int, priced: dict[str, float], value_s: float) -> tuple[ResourcePrice, ...]:
    found = []
    for resource, have in zip(RESOURCES, market.supplies[pool], strict=True):
        price = priced[resource]
        noise = NO_PRICE * value_s / (have or 1.0)
        said = min(float(f"{price:.{PRICE_DIGITS}g}"), MAX_QUANTITY) if price > noise else 0.0
        found.append(ResourcePrice(resource=resource, value_s=said))
    return tuple(found)


def _detail(market: Market, best: Optimum, units: Units) -> str:
    """What the split is worth, what the last one holds back, and what binds."""
    value_s, best_s = market.value_s(units), market.value_s(best.units)
    binding = [
        f"{resource} of {accelerator}"
        for pool, accelerator in enumerate(market.accelerators)
        for resource in RESOURCES
        if best.rise(resource, pool) > NO_PRICE * best_s / (market.supplies[pool][RESOURCES.index(resource)] or 1.0)
    ]
    for number, lever in enumerate(market.levers):
        mine = market.lever_units(units, number)
        if market.caps[number] > 0.0 and mine >= market.caps[number] * (1.0 - BELIEVED_SHARE):
            binding.append(f"cap of {lever}")
        if market.floors[number] > 0.0 and mine <= market.floors[number] * (1.0 + BELIEVED_SHARE):
            binding.append(f"floor of {lever}")
        if market.work_units_s(units, number) >= market.max_work_units_s[number] * (1.0 - BELIEVED_SHARE):
            binding.append(f"useful work of {lever}")
    named = ", ".join(binding[:MAX_NAMED]) or "nothing: more would earn nothing"
    more = f" and {len(binding) - MAX_NAMED} more" if len(binding) > MAX_NAMED else ""
    held_back = f" ({best_s:.4g}/s but for the last split)" if value_s < best_s * (1.0 - BELIEVED_SHARE) else ""
    return f"worth {value_s:.4g}/s{held_back}; bound by {named}{more}"
