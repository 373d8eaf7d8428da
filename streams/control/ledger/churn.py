"""How restless a pool is, and how old. Pure."""

from schemas.records import PoolWindow
from streams.control.ledger.pool_ledger import MAX_QUANTITY, MICRO, MS_PER_S, PoolLedger

S_PER_H = 3_600.0
_DIGITS = 6


def churn_per_unit_h(ledger: PoolLedger) -> float | None:
    """Units taken back, or lost with silent hosts, per usable unit-hour; None where no unit was ever seen."""
    exposure_unit_s = sum(ledger.exposure_unit_s)
    if exposure_unit_s <= 0.0:
        return None
    return round(min(MAX_QUANTITY, S_PER_H * sum(ledger.lost_units) / exposure_unit_s), _DIGITS)


def mean_age_s(pool: PoolWindow) -> float | None:
    """Mean age of a usable unit at the window's end; None where there is none, or the window says nothing of ages.

    Offers that do not say since when they stand count as new.
    """
    usable_micro = pool.units_micro - sum(reason.units_micro for reason in pool.unusable)
    if usable_micro <= 0 or not pool.ages:
        return None
    return round(min(MAX_QUANTITY, pool.age_unit_ms * MICRO / usable_micro / MS_PER_S), _DIGITS)
