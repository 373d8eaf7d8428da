"""Pool snapshots: what is idle, and how it is split among the levers. Pure.

What is idle is said with the capacity window alone, so that agents without any ranking are of use too. Where pools are
split, the tick of the same window says it again, with what each lever has: how a pool is split hangs on what ranking
measured, and no record may depend on which of two windows came first.
"""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.records import ControlWindow, LeverTerms, LeverUnits, PoolSnapshot
from schemas.records.fields import Lever
from streams.control.facts import CapacityFacts, PoolFacts
from streams.control.ledger.bottleneck import Held, bottleneck, pool_bottleneck
from streams.control.ledger.churn import churn_per_unit_h, mean_age_s
from streams.control.ledger.pool_ledger import PoolLedger, updated
from streams.control.ledger.survival import expected_survival_s, survives_share
from streams.control.plan import Plan
from streams.control.settings import MICRO, ControlSettings
from streams.control.split import pool_supply

# Accelerator kinds are few; whoever invents names is not to fill the state.
MAX_LEDGERS = 64
MAX_DETAIL = 4_096


def ledgers_after(ledgers: tuple[PoolLedger, ...], window: ControlWindow) -> tuple[PoolLedger, ...]:
    """What is known of each pool after one more capacity window, that of pools of which nothing is left today too."""
    assert window.capacity is not None
    window_ms = window.end_ms - window.start_ms
    known = {ledger.accelerator: ledger for ledger in ledgers}
    new = {
        pool.accelerator: updated(known.get(pool.accelerator), pool, window_ms=window_ms)
        for pool in window.capacity.pools
    }
    after = {**known, **new}
    kept = sorted(after, key=lambda accelerator: (accelerator not in new, accelerator))[:MAX_LEDGERS]
    return tuple(after[accelerator] for accelerator in sorted(kept))


def pool_snapshots(
    window: ControlWindow, ledgers: tuple[PoolLedger, ...], *, settings: ControlSettings
) -> tuple[PoolSnapshot, ...]:
    """One snapshot of each pool in a capacity window, with what its ledger says."""
    assert window.capacity is not None
    window_ms = window.end_ms - window.start_ms
    known = {ledger.accelerator: ledger for ledger in ledgers}
    return tuple(
        PoolSnapshot(
            cell=window.cell,
            window_index=window.window_index,
            window_end_ms=window.end_ms,
            valid_until_ms=window.end_ms + settings.validity_windows * window_ms,
            accelerator=pool.accelerator,
            num_hosts=pool.num_hosts,
            units_micro=pool.units_micro,
            cpu_cores_micro=pool.cpu_cores_micro,
            memory_bytes=pool.memory_bytes,
            unusable=pool.unusable,
            causes=pool.causes,
            providers=pool.providers,
            noticed_units_micro=pool.noticed_units_micro,
            num_offers=pool.num_offers,
            num_reclaims=pool.num_reclaims,
            num_hosts_silent=pool.num_hosts_silent,
            silent_units_micro=pool.silent_units_micro,
            mean_age_s=mean_age_s(pool),
            expected_survival_s=expected_survival_s(ledger) if ledger is not None else None,
            churn_per_unit_h=churn_per_unit_h(ledger) if ledger is not None else None,
        )
        for pool, ledger in ((pool, known.get(pool.accelerator)) for pool in window.capacity.pools)
    )


def pool_facts(
    snapshots: tuple[PoolSnapshot, ...], ledgers: tuple[PoolLedger, ...], levers: Sequence[LeverTerms]
) -> tuple[PoolFacts, ...]:
    """What a tick needs of each pool; none where there are no levers to split them among."""
    if not levers:
        return ()
    known = {ledger.accelerator: ledger for ledger in ledgers}
    return tuple(
        PoolFacts(
            snapshot=snapshot,
            survives=tuple(
                survives_share(known[snapshot.accelerator], terms.startup_s) if snapshot.accelerator in known else None
                for terms in levers
            ),
        )
        for snapshot in snapshots
    )


def split_snapshots(
    capacity: CapacityFacts, plan: Plan, *, reasons: Mapping[Lever, str], settings: ControlSettings
) -> tuple[PoolSnapshot, ...]:
    """The pools of a tick with what each lever has of them; none where the cell has no levers.

    ``reasons`` say of a lever what its loop finds in its way, beside capacity.
    """
    held = [
        Held(
            terms=terms,
            units_in_cell=sum(units.get(terms.lever, 0.0) for units in plan.units.values()),
            usable_in_cell=sum(pool.usable_units_micro for pool in capacity.pools) / MICRO,
            loop_reason=reasons.get(terms.lever, ""),
        )
        for terms in capacity.limits.levers
    ]
    return tuple(_split_snapshot(pool, plan, held, settings) for pool in capacity.pools)


def _split_snapshot(pool: PoolFacts, plan: Plan, held: Sequence[Held], settings: ControlSettings) -> PoolSnapshot:
    split, units = plan.split, plan.units.get(pool.accelerator, {})
    grants = split.allocation.pool(pool.accelerator) if split.allocation is not None else None
    prices = grants.prices if grants is not None else ()
    supply = pool_supply(pool, [lever.terms for lever in held])
    levers = [
        LeverUnits(
            lever=lever.terms.lever,
            units_micro=int(units.get(lever.terms.lever, 0.0) * MICRO),
            bottleneck=bottleneck(
                supply, lever, unusable=pool.snapshot.unusable, prices=prices, settings=settings.allocator
            ),
            survives_share=survives,
        )
        for lever, survives in zip(held, pool.survives, strict=True)
    ]
    return msgspec.structs.replace(
        pool.snapshot,
        bottleneck=pool_bottleneck(levers),
        levers=levers,
        prices=list(prices),
        allocation=split.mode,
        allocation_detail=split.detail[:MAX_DETAIL],
    )
