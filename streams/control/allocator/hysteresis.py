"""The last split seen from today: as an anchor, and kept in force.

A split is held as shares of each pool. As an anchor those shares are today's units; a lever that holds units of a pool
is paid for staying there: a bonus per unit of ``hysteresis_share`` x what a unit of the pool earns at the margin (its
work times the price of work, the best of its levers), as turnover is priced in portfolio choice (Magill and
Constantinides, 1976: a region in which nothing is traded). So

- a unit leaves a lever only where it earns more than the bonus elsewhere, and equal values, or values that tremble by
  less, move nothing;
- units that nobody holds are given out at once, and what nobody can use any more is taken away at once;
- the whole split earns less than the best by about ``hysteresis_share`` at most: the bonuses of all units together.
"""

from streams.control.allocator.allocation import Allocation
from streams.control.allocator.market import Market, Units
from streams.control.allocator.rule import ruled


def anchored(market: Market, last: Allocation) -> Units:
    """Units of each place by the last split's shares, at most what can be run there today."""
    return [
        min(
            last.share(market.accelerators[place.pool], market.levers[place.lever]) * market.supplies[place.pool][0],
            place.most_units,
        )
        for place in market.places
    ]


def kept(market: Market, last: Allocation) -> Units:
    """The last split within today's bounds.

    1. Its shares of today's units; those of a pool that it did not know, by the rule.
    2. Each pool, then each lever, is scaled into what there is of cores and memory, and into its cap.
    3. Where a floor is missed, it is mixed with the rule's split, which keeps all: two splits within bounds that are
       convex, so the mixture is, too.
    """
    rule = ruled(market)
    units = anchored(market, last)
    for pool, accelerator in enumerate(market.accelerators):
        if last.pool(accelerator) is None:
            for at in market.by_pool[pool]:
                units[at] = rule[at]
        for resource, have in enumerate(market.supplies[pool]):
            used = market.used(units, pool, resource)
            if used > have:
                for at in market.by_pool[pool]:
                    if market.places[at].needs[resource] > 0.0:
                        units[at] *= have / used
    for lever, own in enumerate(market.by_lever):
        held = market.lever_units(units, lever)
        if held > market.caps[lever]:
            for at in own:
                units[at] *= market.caps[lever] / held
    return _mixed(market, units, rule)


def _mixed(market: Market, units: Units, rule: Units) -> Units:
    part = 0.0
    for lever, floor in enumerate(market.floors):
        held = market.lever_units(units, lever)
        if held < floor:
            part = max(part, (floor - held) / max(market.lever_units(rule, lever) - held, floor - held))
    return [(1.0 - part) * mine + part * ruled_units for mine, ruled_units in zip(units, rule, strict=True)]


def bonuses(market: Market, *, work_prices: list[float], share: float) -> list[float]:
    """Bonus per unit that stays at each place; ``work_prices`` are the value of one more work unit of each lever."""
    worth = [
        max(
            (market.places[at].work_per_unit_s * work_prices[market.places[at].lever] for at in own),
            default=0.0,
        )
        for own in market.by_pool
    ]
    return [share * worth[place.pool] for place in market.places]
