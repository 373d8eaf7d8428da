"""From the facts of a cell to its pools. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ops.status.facts import CellFacts
from ops.status.model import PoolStatus
from schemas.records import ControlWindow, LabelledUnits, PoolSnapshot, PoolWindow

MICRO = 1_000_000


def pools_of(facts: CellFacts) -> list[PoolStatus]:
    """Pools of the last capacity window; of the last snapshots where no window is held.

    Control publishes the same pools a moment later, with what only it knows of them. A snapshot of a pool that the
    window does not list is of one that has gone.
    """
    offers, reclaims = events(facts.capacity.values())
    window = facts.last_capacity()
    listed: Sequence[PoolWindow | PoolSnapshot]
    if window is not None and window.capacity is not None:
        listed = window.capacity.pools
    else:
        newest_ms = max((pool.window_end_ms for pool in facts.pools.values()), default=0)
        listed = [pool for _, pool in sorted(facts.pools.items()) if pool.window_end_ms == newest_ms]
        offers = Counter({pool.accelerator: pool.num_offers for pool in listed})
        reclaims = Counter({pool.accelerator: pool.num_reclaims for pool in listed})
    return [
        _pool(pool, facts.pools.get(pool.accelerator), offers[pool.accelerator], reclaims[pool.accelerator])
        for pool in listed
    ]


def _pool(
    pool: PoolWindow | PoolSnapshot, snapshot: PoolSnapshot | None, num_offers: int, num_reclaims: int
) -> PoolStatus:
    unusable = _units(pool.unusable)
    return PoolStatus(
        accelerator=pool.accelerator,
        usable_units=max(0, pool.units_micro - sum(reason.units_micro for reason in pool.unusable)) / MICRO,
        units=pool.units_micro / MICRO,
        unusable_units=unusable,
        idle_causes=_units(pool.causes),
        providers=_units(pool.providers),
        noticed_units=pool.noticed_units_micro / MICRO,
        cpu_cores=pool.cpu_cores_micro / MICRO,
        memory_bytes=pool.memory_bytes,
        num_hosts=pool.num_hosts,
        num_offers=num_offers,
        num_reclaims=num_reclaims,
        expected_survival_s=None if snapshot is None else snapshot.expected_survival_s,
        bottleneck=(snapshot.bottleneck or None) if snapshot is not None else None,
    )


def _units(labelled: Iterable[LabelledUnits]) -> dict[str, float]:
    return {units.label: units.units_micro / MICRO for units in labelled if units.units_micro}


def events(windows: Iterable[ControlWindow]) -> tuple[Counter[str], Counter[str]]:
    """Offers and reclaims by accelerator over some capacity windows."""
    offers: Counter[str] = Counter()
    reclaims: Counter[str] = Counter()
    for window in windows:
        for pool in window.capacity.pools if window.capacity is not None else ():
            offers[pool.accelerator] += pool.num_offers
            reclaims[pool.accelerator] += pool.num_reclaims
    return offers, reclaims
