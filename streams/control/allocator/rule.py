"""The rule: a split without any value curve, within every bound. It is also what a kept split falls back on.

1. Every lever gets its floor, spread over its places in proportion to what it can run there.
2. The rest of each pool is shared alike by the levers that can use it, in proportion to the share of it that outlives
   their start, as far as cap and useful work allow.
3. What a lever could not use (no cores, no memory, at its cap) goes to the others, in their order.

Steps 1 and 2 give a place w_pl r_pl units with the w of a pool summing to at most 1, so they need at most all of every
resource; step 3 only takes what is left.
"""

import math

from streams.control.allocator.market import Market, Units


def ruled(market: Market) -> Units:
    """Units of each place by the rule."""
    floor_N = _floor(market)
    extra_N = _alike(market, floor_N)
    units = list(floor_N)
    for lever, own in enumerate(market.by_lever):
        part = min(
            1.0,
            _portion(market.caps[lever] - market.lever_units(floor_N, lever), market.lever_units(extra_N, lever)),
            _portion(
                market.max_work_units_s[lever] - market.work_units_s(floor_N, lever),
                market.work_units_s(extra_N, lever),
            ),
        )
        for at in own:
            units[at] += part * extra_N[at]
    return _filled(market, units)


def _floor(market: Market) -> Units:
    units = [0.0] * len(market.places)
    for lever, own in enumerate(market.by_lever):
        can_run = math.fsum(market.places[at].most_units * market.places[at].lives for at in own)
        for at in own:
            place = market.places[at]
            units[at] = market.floors[lever] * _portion(place.most_units * place.lives, can_run)
    return units


def _alike(market: Market, floor_N: Units) -> Units:
    """What the floors leave of each pool, to its levers in proportion to the units that live."""
    units = [0.0] * len(market.places)
    for own in market.by_pool:
        able = [at for at in own if market.places[at].most_units > 0.0]
        free = 1.0 - math.fsum(_portion(floor_N[at], market.places[at].most_units) for at in able)
        lives = math.fsum(market.places[at].lives for at in able)
        for at in able:
            place = market.places[at]
            units[at] = max(0.0, free) * _portion(place.lives, lives) * place.most_units
    return units


def _filled(market: Market, units: Units) -> Units:
    """The split with what is still free of each pool, as far as it goes."""
    filled = list(units)
    for pool, own in enumerate(market.by_pool):
        for at in own:
            place = market.places[at]
            lever = place.lever
            room = [
                (market.supplies[pool][resource] - market.used(filled, pool, resource)) / need
                for resource, need in enumerate(place.needs)
                if need > 0.0
            ]
            room.append(market.caps[lever] - market.lever_units(filled, lever))
            room.append((market.max_work_units_s[lever] - market.work_units_s(filled, lever)) / place.work_per_unit_s)
            filled[at] += max(0.0, min(room))
    return filled


def _portion(part: float, whole: float) -> float:
    """Part of a whole, in [0, inf); everything of nothing is nothing."""
    return max(0.0, part) / whole if whole > 0.0 else 0.0
