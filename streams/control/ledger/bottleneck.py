"""What keeps a lever from having, or using, more of a pool. Pure.

One word, the first of these that holds:

1. ``compatibility``: the lever does not run on the pool's accelerator.
2. ``upstream``, ``network``, ``dependent``: declared by the lever's loop; more capacity would not help.
3. No unit is usable: what makes the idle ones unusable, or ``accelerator`` where none is idle.
4. ``survival``: too little of the pool outlives the lever's start for starting it at all.
5. ``cap``: the lever has its largest share of the cell's usable units.
6. The resource that is dearest to the lever: the largest of price x need per unit. ``value`` where all that it needs is
   free: more of it would earn nothing.
7. Without prices (the split was made by a rule) the resource that allows the fewest units of the lever.

Where it is accelerators that are missing (6 and 7) although more of them lie idle for one reason than are usable, that
reason is named: another accelerator would only be one more of those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.records import LabelledUnits, LeverTerms, LeverUnits, ResourcePrice
from streams.control.allocator.problem import GIB_BYTES, AllocatorSettings, PoolSupply
from streams.control.ledger.pool_ledger import MICRO

DECLARED = frozenset(("upstream", "network", "dependent"))
# An offer can declare today the first four; the others have their place should its vocabulary grow.
BY_UNUSABLE_REASON: Mapping[str, str] = {
    "model_format": "compatibility",
    "memory": "memory",
    "missing_cpu": "cpu",
    "too_short": "survival",
    "network": "network",
    "dependent": "dependent",
}
# Shares are rounded down to millionths of each pool: what is within this of its cap is at it.
_ALMOST = 1.0 - 1e-5


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a lever has in the cell, out of ``usable_in_cell`` units, and what its loop says stands in its way."""

    terms: LeverTerms
    units_in_cell: float
    usable_in_cell: float
    loop_reason: str = ""


def bottleneck(
    supply: PoolSupply,
    held: Held,
    *,
    unusable: Sequence[LabelledUnits] = (),
    prices: Sequence[ResourcePrice] = (),
    settings: AllocatorSettings | None = None,
) -> str:
    """The word for one lever on one pool; ``unusable`` are the pool's idle units of no use now, by reason."""
    terms = held.terms
    fit = next((fit for fit in terms.fits if fit.accelerator == supply.accelerator), None)
    if fit is None:
        return "compatibility"
    if held.loop_reason in DECLARED:
        return held.loop_reason
    if supply.usable_units <= 0.0:
        return _idle_for(unusable, more_than_units=0.0) or "accelerator"
    if not _worth_a_start(supply.survives.get(terms.lever, 1.0), settings or AllocatorSettings()):
        return "survival"
    if terms.max_share < 1.0 and held.units_in_cell >= _ALMOST * terms.max_share * held.usable_in_cell:
        return "cap"
    needs = {
        "accelerator": 1.0,
        "cpu": fit.cpu_cores_per_unit,
        "memory": fit.memory_bytes_per_unit / GIB_BYTES,
    }
    word = _dearest(needs, prices) if prices else _scarcest(needs, supply)
    if word == "accelerator":
        return _idle_for(unusable, more_than_units=supply.usable_units) or word
    return word


def pool_bottleneck(levers: Sequence[LeverUnits]) -> str:
    """The word for a pool as a whole: that of the lever that has most of it, or of the first one that runs there."""
    running = [lever for lever in levers if lever.bottleneck not in ("", "compatibility")]
    if running:
        return max(running, key=lambda lever: lever.units_micro).bottleneck
    return levers[0].bottleneck if levers else ""


def _worth_a_start(survives: float, settings: AllocatorSettings) -> bool:
    """As the allocator sees it: what survives against what the starts of the lost cost."""
    return survives > settings.lost_start_cost * (1.0 - survives)


def _dearest(needs: Mapping[str, float], prices: Sequence[ResourcePrice]) -> str:
    costs = {price.resource: price.value_s * needs.get(price.resource, 0.0) for price in prices}
    word = max(needs, key=lambda resource: costs.get(resource, 0.0))
    return word if costs.get(word, 0.0) > 0.0 else "value"


def _scarcest(needs: Mapping[str, float], supply: PoolSupply) -> str:
    have = {"accelerator": supply.usable_units, "cpu": supply.cpu_cores, "memory": supply.memory_gib}
    return min((resource for resource in needs if needs[resource] > 0.0), key=lambda name: have[name] / needs[name])


def _idle_for(unusable: Sequence[LabelledUnits], *, more_than_units: float) -> str:
    """The reason for which most units lie idle, if these are more than so many; empty where none is."""
    known = [reason for reason in unusable if reason.label in BY_UNUSABLE_REASON]
    # By size, then by name: the order of a record's list is not to matter.
    largest = max(known, key=lambda reason: (reason.units_micro, reason.label), default=None)
    if largest is None or largest.units_micro <= more_than_units * MICRO:
        return ""
    return BY_UNUSABLE_REASON[largest.label]
