"""What a pool's windows say together: who was exposed to being taken back, at which age, and who was. Pure.

Per age class the ledger sums

    exposure   units idle at a window's end x the window's length      (unit-seconds)
    losses     units taken back, or lost with a host that fell silent  (units)

A window's end finds an offer in a class as often as the offer stays there, so exposure is unbiased for offers still
alive and for those taken back alike. An offer still alive is exposure without a loss: it is counted as far as it was
seen, and nothing is assumed of its end. One that was old when it was first seen counts from that age on.

Both fade alike, so that their ratio is of the last hours. Only sums and products in a fixed order: the same windows
give the same bytes anywhere.
"""

import msgspec
from msgspec import Struct

from schemas.age_classes import AGE_CLASSES_S
from schemas.records import PoolWindow
from schemas.records.fields import Count, Name, Quantity

# A quarter of a day ago counts a third: capacity of the day says little of the evening's.
MEMORY_S = 21_600.0
MAX_QUANTITY = 1e12
MICRO = 1_000_000
MS_PER_S = 1_000

_NONE = (0.0,) * len(AGE_CLASSES_S)
_PLACES = {from_age_s: place for place, from_age_s in enumerate(AGE_CLASSES_S)}


class PoolLedger(Struct, frozen=True, kw_only=True):
    """Evidence of one pool, by age class, and what it offers today.

    ``exposure_unit_s`` and ``lost_units`` are faded sums; ``units_micro`` are today's usable units by age class.
    ``host_units`` are the usable units of a host on average, when last there were any.
    """

    accelerator: Name
    exposure_unit_s: tuple[Quantity, ...] = _NONE
    lost_units: tuple[Quantity, ...] = _NONE
    units_micro: tuple[Count, ...] = (0,) * len(AGE_CLASSES_S)
    host_units: Quantity = 0.0


def updated(ledger: PoolLedger | None, pool: PoolWindow, *, window_ms: int) -> PoolLedger:
    """The ledger after one more window of its pool; None: the pool was not known before.

    Age classes that are not among AGE_CLASSES_S count in the one that they begin in.
    """
    held = ledger if ledger is not None else PoolLedger(accelerator=pool.accelerator)
    assert held.accelerator == pool.accelerator
    window_s = window_ms / MS_PER_S
    fade = max(0.0, 1.0 - window_s / MEMORY_S)
    exposure = [fade * exposed for exposed in held.exposure_unit_s]
    lost = [fade * units for units in held.lost_units]
    today = [0] * len(AGE_CLASSES_S)
    for aged in pool.ages:
        place = _place(aged.from_age_s)
        today[place] += aged.units_micro
        exposure[place] += aged.units_micro / MICRO * window_s
        lost[place] += aged.taken_micro / MICRO
    usable_units = sum(today) / MICRO
    return msgspec.structs.replace(
        held,
        exposure_unit_s=tuple(min(MAX_QUANTITY, exposed) for exposed in exposure),
        lost_units=tuple(min(MAX_QUANTITY, units) for units in lost),
        units_micro=tuple(min(units, 2**62) for units in today),
        host_units=min(MAX_QUANTITY, usable_units / pool.num_hosts)
        if usable_units > 0.0 and pool.num_hosts > 0
        else held.host_units,
    )


def _place(from_age_s: int) -> int:
    place = _PLACES.get(from_age_s)
    if place is None:
        place = max(place for bound_s, place in _PLACES.items() if bound_s <= from_age_s)
    return place
