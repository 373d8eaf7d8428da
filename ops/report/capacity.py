"""Idle capacity over a range: what was idle, why, what of it was usable, and what was taken back. Pure.

A window says what is idle at its end; that stands for the whole of it. Amounts are unit-milliseconds times 10^6.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Final

from ops.report.model import AgeClass, Idle, Preemptions, SizeClass, Spend, Use
from schemas.histogram import ExponentialHistogram
from schemas.records import CapacityWindow, CellLimits, ControlWindow, PoolWindow
from schemas.records.fields import Lever
from streams.control.facts import MICRO

MS_PER_H: Final = 3_600_000
_UNIT_H: Final = MICRO * MS_PER_H
_US_PER_H: Final = 3_600_000_000
# Who works on opportunistic replicas for which lever.
LEVER_BY_ROUTE: Final[dict[str, Lever]] = {"wide": "rma", "powerful": "sbm"}


@dataclass(kw_only=True)
class PoolSums:
    """One pool of one cell: unit-milliseconds times 10^6."""

    idle: int = 0
    usable: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)


@dataclass(kw_only=True)
class CellCapacity:
    """Sums of one cell over its capacity windows, and how long its replicas were busy for each lever."""

    covered_ms: int = 0
    pools: defaultdict[str, PoolSums] = field(default_factory=lambda: defaultdict(PoolSums))
    limits: CellLimits | None = None
    busy_us: Counter[Lever] = field(default_factory=Counter)
    units_done: Counter[Lever] = field(default_factory=Counter)
    num_reclaims: int = 0
    num_hosts_silent: int = 0
    taken_micro: int = 0

    def add(self, window: ControlWindow) -> None:
        """Take in a capacity window."""
        assert window.capacity is not None
        window_ms = window.end_ms - window.start_ms
        self.covered_ms += window_ms
        self.limits = window.capacity.limits
        for pool in window.capacity.pools:
            sums = self.pools[pool.accelerator]
            sums.idle += pool.units_micro * window_ms
            sums.usable += usable_micro(pool) * window_ms
            sums.causes.update({each.label: each.units_micro * window_ms for each in pool.causes})
            sums.unusable.update({each.label: each.units_micro * window_ms for each in pool.unusable})
            self.num_reclaims += pool.num_reclaims
            self.num_hosts_silent += pool.num_hosts_silent
            self.taken_micro += taken_micro(pool)

    def pools_of(self, lever: Lever) -> list[str]:
        """The pools that a lever runs on; without terms RMA may use every pool."""
        terms = [] if self.limits is None else self.limits.levers
        if not terms:
            return sorted(self.pools) if lever == "rma" else []
        fits = {fit.accelerator for each in terms if each.lever == lever for fit in each.fits}
        return sorted(fits & self.pools.keys())

    def used_us(self) -> dict[str, int] | None:
        """Busy microseconds of each pool, shared out among those that a lever runs on; None where none is known of."""
        used: Counter[str] = Counter()
        for lever, busy_us in sorted(self.busy_us.items()):
            names = self.pools_of(lever)
            usable = sum(self.pools[name].usable for name in names)
            if busy_us and not usable:
                return None
            for name in names:
                used[name] += busy_us * self.pools[name].usable // usable if usable else 0
        return dict(used)


def usable_micro(pool: PoolWindow) -> int:
    """Usable units of a pool."""
    return max(0, pool.units_micro - sum(reason.units_micro for reason in pool.unusable))


def taken_micro(pool: PoolWindow) -> int:
    """Usable units that were taken back in the window, or lost with a silent host."""
    return sum(age.taken_micro for age in pool.ages)


def is_taken(capacity: CapacityWindow) -> bool:
    """Whether anything was taken back in the window."""
    return any(pool.num_reclaims or pool.num_hosts_silent or taken_micro(pool) for pool in capacity.pools)


def idle(cells: Sequence[CellCapacity]) -> Idle | None:
    """Idle capacity of all cells; None where no window says anything of it."""
    if not any(sums.idle for cell in cells for sums in cell.pools.values()):
        return None
    # Idle, usable, used (microseconds; None: not known) by pool and cause.
    parts: list[tuple[str, str, float, float, float | None, bool]] = []
    unusable: Counter[str] = Counter()
    for cell in cells:
        used_us = cell.used_us()
        for name, sums in sorted(cell.pools.items()):
            busy_us = None if used_us is None else float(used_us.get(name, 0))
            causes = dict(sums.causes) if sum(sums.causes.values()) else {"not told": sums.idle}
            said = sum(causes.values())
            for cause, amount in sorted(causes.items()):
                share = amount / said if said else 0.0
                parts.append(
                    (
                        name,
                        cause,
                        sums.idle * share,
                        sums.usable * share,
                        None if busy_us is None else busy_us * share,
                        len(causes) > 1,
                    )
                )
            unusable.update(sums.unusable)
    pools = sorted({part[0] for part in parts})
    causes_found = sorted({part[1] for part in parts})
    return Idle(
        total=_use("all", parts, is_shared_out=False),
        by_cause=[
            _use(cause, [part for part in parts if part[1] == cause], is_shared_out=True) for cause in causes_found
        ],
        by_pool=[_use(name, [part for part in parts if part[0] == name], is_shared_out=False) for name in pools],
        unusable={reason: amount / _UNIT_H for reason, amount in sorted(unusable.items())},
    )


def _use(label: str, parts: Iterable[tuple[str, str, float, float, float | None, bool]], *, is_shared_out: bool) -> Use:
    found = list(parts)
    idle_h = sum(part[2] for part in found) / _UNIT_H
    usable_h = sum(part[3] for part in found) / _UNIT_H
    busy_us = [part[4] for part in found if part[4] is not None]
    used_h = sum(busy_us) / _US_PER_H if len(busy_us) == len(found) else None
    return Use(
        label=label,
        idle_unit_h=idle_h,
        usable_unit_h=usable_h,
        used_unit_h=used_h,
        usable_share=usable_h / idle_h if idle_h else None,
        used_share=None if used_h is None or not idle_h else used_h / idle_h,
        is_estimate=is_shared_out and any(part[5] for part in found),
    )


def spend(cells: Sequence[CellCapacity]) -> list[Spend]:
    """What each lever that has a pool, or did any work, spent of its budget."""
    levers: list[Lever] = ["rma", "sbm"]
    rows = []
    for lever in levers:
        planned = 0.0
        names: set[str] = set()
        for cell in cells:
            if cell.limits is not None:
                names |= set(cell.pools_of(lever))
                usable = sum(cell.pools[name].usable for name in cell.pools_of(lever))
                planned += usable * cell.limits.utilisation / _UNIT_H
        busy_us = sum(cell.busy_us[lever] for cell in cells)
        units_done = sum(cell.units_done[lever] for cell in cells)
        if not names and not busy_us:
            continue
        rows.append(
            Spend(
                lever=lever,
                pools=sorted(names),
                planned_unit_h=planned,
                busy_unit_h=busy_us / _US_PER_H,
                spent_share=busy_us / _US_PER_H / planned if planned else None,
                units_done=units_done,
                units_per_busy_s=units_done / (busy_us / MICRO) if busy_us else None,
            )
        )
    return rows


class PreemptionSizes:
    """Sizes and ages of what was taken, of all cells."""

    def __init__(self) -> None:
        self._units = ExponentialHistogram()
        self._pool_shares = ExponentialHistogram()
        self._classes: Counter[int] = Counter()
        self._ages: Counter[int] = Counter()
        self._largest_micro = 0

    def add(self, capacity: CapacityWindow) -> None:
        """Take in the pools of a capacity window."""
        for pool in capacity.pools:
            taken = taken_micro(pool)
            if not taken:
                continue
            self._units.record(taken / MICRO)
            self._pool_shares.record(taken / (taken + usable_micro(pool)))
            self._classes[ceil(log2(taken / MICRO))] += 1
            self._largest_micro = max(self._largest_micro, taken)
            self._ages.update({age.from_age_s: age.taken_micro for age in pool.ages if age.taken_micro})

    def preemptions(self, cells: Sequence[CellCapacity]) -> Preemptions | None:
        """What was taken back; None where no capacity window was seen."""
        seen = [cell for cell in cells if cell.covered_ms]
        if not seen:
            return None

        def per_hour(counts: Iterable[float]) -> float:
            rates = zip(counts, seen, strict=True)
            return sum(count * MS_PER_H / cell.covered_ms for count, cell in rates)

        return Preemptions(
            num_reclaims=sum(cell.num_reclaims for cell in seen),
            num_hosts_silent=sum(cell.num_hosts_silent for cell in seen),
            per_hour=per_hour(cell.num_reclaims + cell.num_hosts_silent for cell in seen),
            units_taken=sum(cell.taken_micro for cell in seen) / MICRO,
            units_per_hour=per_hour(cell.taken_micro / MICRO for cell in seen),
            num_windows=self._units.count,
            median_units=self._units.quantile(0.5),
            largest_units=self._largest_micro / MICRO if self._largest_micro else None,
            median_pool_share=_share(self._pool_shares.quantile(0.5)),
            sizes=[
                SizeClass(from_units=2.0 ** (power - 1), to_units=2.0**power, num_preemptions=count)
                for power, count in sorted(self._classes.items())
            ],
            ages=[AgeClass(from_age_s=age_s, units=taken / MICRO) for age_s, taken in sorted(self._ages.items())],
        )


def _share(value: float | None) -> float | None:
    # A histogram answers with the middle of a bucket, which may lie above the largest value.
    return None if value is None else min(1.0, value)
