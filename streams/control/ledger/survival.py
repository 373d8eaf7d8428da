"""How long a pool's capacity will last: a life table over offers that have ended and offers that have not. Pure.

Estimator. Within an age class the rate of loss is taken to be constant, and is estimated as occurrences over exposure:

    rate_i = (losses_i + a) / (exposure_i + a / pooled rate),     pooled rate = (sum of losses + a) / sum of exposure
    S(t | age) = exp(-(integral of the rate from age to age + t))

This is the actuarial life table (Cutler & Ederer 1958) with exposure counted in time instead of half an interval for
whoever is withdrawn alive, the grouped relative of the product-limit estimator (Kaplan & Meier 1958). Offers still
alive are censored on the right: they are exposure up to now and no loss. Offers first seen at an age enter at that age.
The mean of ended lifetimes would know only those that did not last.

``a`` is half a host's units, a gamma prior around the pooled rate: a class of which little is known goes by the pool as
a whole, and a pool that has lost nothing yet is trusted for about as long as it has been watched, not for ever.

What is said is of today's usable units: each stands in the middle of its age class, those of the last class at its
start. No rate is taken to be below one loss per unit in MAX_SURVIVAL_S, which bounds what can be promised of each unit,
so that a few that seem to stay for ever do not hide that the others go.
"""

import math
from itertools import pairwise

from schemas.age_classes import AGE_CLASSES_S
from streams.control.ledger.pool_ledger import PoolLedger

# A week: what no window of a few hours can vouch for.
MAX_SURVIVAL_S = 604_800.0
PRIOR_HOSTS = 0.5
# Rounded, so that no difference between mathematical libraries gets into a record.
_SHARE_DIGITS = 6
_SECONDS_DIGITS = 3

_WIDTHS_S = tuple(float(end - start) for start, end in pairwise(AGE_CLASSES_S))
_LAST = len(AGE_CLASSES_S) - 1


def survives_share(ledger: PoolLedger, startup_s: float) -> float | None:
    """Share of today's usable units that is expected to outlive ``startup_s``; None: none today, or nothing known."""
    rates = _rates(ledger)
    if rates is None:
        return None
    units = ledger.units_micro
    alive = sum(
        count * math.exp(-_cumulative(rates, place, startup_s)) for place, count in enumerate(units) if count > 0
    )
    return round(min(1.0, alive / sum(units)), _SHARE_DIGITS)


def expected_survival_s(ledger: PoolLedger) -> float | None:
    """Mean time that is left to a usable unit of today, at most MAX_SURVIVAL_S; None as in ``survives_share``."""
    rates = _rates(ledger)
    if rates is None:
        return None
    # Time left at the start of each class, from the last one back: until the class ends, and what is left then.
    left_s = 1.0 / rates[_LAST]
    total_s = ledger.units_micro[_LAST] * left_s
    for place in range(_LAST - 1, -1, -1):
        total_s += ledger.units_micro[place] * _left_s(rates[place], _WIDTHS_S[place] / 2.0, left_s)
        left_s = _left_s(rates[place], _WIDTHS_S[place], left_s)
    return round(total_s / sum(ledger.units_micro), _SECONDS_DIGITS)


def _rates(ledger: PoolLedger) -> tuple[float, ...] | None:
    """Losses per unit-second in each class, by the formula above; None where nothing can be said."""
    exposure_unit_s = sum(ledger.exposure_unit_s)
    prior_units = PRIOR_HOSTS * ledger.host_units
    if exposure_unit_s <= 0.0 or prior_units <= 0.0 or sum(ledger.units_micro) == 0:
        return None
    pooled = (sum(ledger.lost_units) + prior_units) / exposure_unit_s
    return tuple(
        max(1.0 / MAX_SURVIVAL_S, (lost + prior_units) / (exposed + prior_units / pooled))
        for lost, exposed in zip(ledger.lost_units, ledger.exposure_unit_s, strict=True)
    )


def _cumulative(rates: tuple[float, ...], place: int, duration_s: float) -> float:
    """Integral of the rate from the middle of a class on."""
    total = 0.0
    rest_s = _WIDTHS_S[place] / 2.0 if place < _LAST else math.inf
    while duration_s > rest_s:
        total += rates[place] * rest_s
        duration_s -= rest_s
        place += 1
        rest_s = _WIDTHS_S[place] if place < _LAST else math.inf
    return total + rates[place] * duration_s


def _left_s(rate: float, width_s: float, then_s: float) -> float:
    """Mean time left ``width_s`` before the end of a class, if ``then_s`` is left at its end."""
    survives = math.exp(-rate * width_s)
    return (1.0 - survives) / rate + survives * then_s
