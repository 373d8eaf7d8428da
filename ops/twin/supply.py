"""Idle capacity of one cell over time: hosts that come and go, summed by pool. Pure.

Each call costs what changed since the last, not what there is, but for sums of arrays over the cell's hosts.
Shape legend: H hosts of the cell, P pools.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from ops.simulator.scenario_model import Host
from ops.simulator.timeline import HostEvent
from schemas.age_classes import AGE_CLASSES_S
from schemas.records import AgedUnits, LabelledUnits, PoolWindow

_MICRO = 1_000_000
_CLASSES_S = np.array(AGE_CLASSES_S, dtype=np.float64)


@dataclass(frozen=True)
class Change:
    """Usable units that came to a pool (or were taken from it: negative) at one moment."""

    at_s: float
    pool: int
    units: float


class Usable(NamedTuple):
    """What is usable of one pool: accelerator units, and the cores and bytes of memory beside them."""

    units: float
    cpu_cores: float
    memory_bytes: float


class Stay(NamedTuple):
    """A usable host with its units from one time to another, infinite where it stays; ``since_s`` it is offered."""

    since_s: float
    from_s: float
    until_s: float
    units: float
    cpu_cores: float
    memory_bytes: float


@dataclass
class _Counts:
    """What happened to a pool since the last window's end; units of each age class that were taken back."""

    num_offers: int = 0
    num_reclaims: int = 0
    taken_micro: dict[int, int] = field(default_factory=dict)

    @property
    def is_quiet(self) -> bool:
        return not (self.num_offers or self.num_reclaims)


class _Sums:
    """What the hosts that are here make of a pool, in whole numbers: adding and taking away is exact."""

    def __init__(self) -> None:
        self.num_hosts = 0
        self.units_micro = 0
        self.cpu_cores_micro = 0
        self.memory_bytes = 0
        self.noticed_micro = 0
        self.unusable: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.providers: Counter[str] = Counter()

    def add(self, host: Host, units: float, *, is_noticed: bool, sign: int = 1) -> None:
        """Add a host with so many units, or take it away as it was added (``sign`` -1)."""
        units_micro = sign * round(units * _MICRO)
        self.num_hosts += sign
        self.units_micro += units_micro
        self.cpu_cores_micro += sign * round(host.cpu_cores * _MICRO)
        self.memory_bytes += sign * host.memory_bytes
        self.causes[host.idle_cause] += units_micro
        self.providers[host.provider] += units_micro
        if host.unusable is not None:
            self.unusable[host.unusable] += units_micro
        elif is_noticed:
            self.noticed_micro += units_micro


class Supply:
    """The hosts of a cell, played in time. Hosts are by number; ``accelerators`` are the pools, by name in order."""

    def __init__(self, hosts: Sequence[Host], events: Iterable[HostEvent]) -> None:
        self.accelerators = tuple(sorted({host.accelerator for host in hosts}))
        self._hosts = hosts
        self._number = {host.name: number for number, host in enumerate(hosts)}
        self._events = tuple(events)
        self._next = 0
        self._pool_H = np.array([self.accelerators.index(host.accelerator) for host in hosts], dtype=np.int64)
        self._units_H = np.array([host.units for host in hosts], dtype=np.float64)
        self._is_here_H = np.array([host.offered_at_start for host in hosts], dtype=bool)
        self._is_usable_H = np.array([host.unusable is None for host in hosts], dtype=bool)
        self._is_noticed_H = np.zeros(len(hosts), dtype=bool)
        self._since_s_H = np.zeros(len(hosts))
        self._cores_H = np.array([host.cpu_cores for host in hosts], dtype=np.float64)
        self._memory_H = np.array([host.memory_bytes for host in hosts], dtype=np.float64)
        self._counts = [_Counts() for _ in self.accelerators]
        self._sums = [_Sums() for _ in self.accelerators]
        for host in hosts:
            if host.offered_at_start:
                self._sums[self.accelerators.index(host.accelerator)].add(host, host.units, is_noticed=False)
        # What is worked out once and stands until something happens to the pool.
        self._windows: dict[int, PoolWindow] = {}
        self._usable_pools: list[Usable] | None = None
        empty = (np.zeros(0), np.zeros(1))
        self._since = [empty for _ in self.accelerators]
        self._unit_since_s = [0.0 for _ in self.accelerators]

    def usable(self) -> list[Usable]:
        """What is usable of each pool now."""
        if self._usable_pools is None:
            is_in_H = self._is_here_H & self._is_usable_H
            sums = [
                np.bincount(self._pool_H, weights=np.where(is_in_H, values_H, 0.0), minlength=len(self.accelerators))
                for values_H in (self._units_H, self._cores_H, self._memory_H)
            ]
            self._usable_pools = [Usable(*pool) for pool in np.array(sums).T.tolist()]
        return self._usable_pools

    def play(self, until_s: float) -> list[Change]:
        """What happens up to and including ``until_s``, in order; the supply is as after it."""
        changes: list[Change] = []
        while self._next < len(self._events) and self._events[self._next].at_s <= until_s:
            changes += self._happen(self._events[self._next])
            self._next += 1
        return changes

    def next_at_s(self) -> float:
        """When something happens next; infinite where nothing does."""
        return self._events[self._next].at_s if self._next < len(self._events) else float("inf")

    def pool_windows(self, end_s: float) -> list[PoolWindow]:
        """The pools at a window's end, as ingest would close it; counts of offers and reclaims start anew."""
        windows: list[PoolWindow] = []
        for pool, counts in enumerate(self._counts):
            if pool not in self._windows:
                self._windows[pool] = self._pool_window(pool)
                self._sort_by_age(pool)
            windows.append(self._aged(pool, self._windows[pool], end_s))
            if not counts.is_quiet:
                self._counts[pool] = _Counts()
                del self._windows[pool]
        return windows

    def _sort_by_age(self, pool: int) -> None:
        usable = np.flatnonzero((self._pool_H == pool) & self._is_here_H & self._is_usable_H)
        usable = usable[np.argsort(self._since_s_H[usable], kind="stable")]
        since_s, units = self._since_s_H[usable], self._units_H[usable]
        self._since[pool] = since_s, np.append(0.0, np.cumsum(units))
        self._unit_since_s[pool] = float(since_s @ units)

    def _aged(self, pool: int, window: PoolWindow, end_s: float) -> PoolWindow:
        since_s, units_before = self._since[pool]
        # Hosts in the order of their offers: those offered up to end - bound are at least so old.
        old_enough = since_s.searchsorted(end_s - _CLASSES_S, side="right")
        sums = units_before[old_enough]
        idle: list[float] = (sums - np.append(sums[1:], 0.0)).tolist()
        moment = float(units_before[-1]) * end_s - self._unit_since_s[pool]
        taken = self._counts[pool].taken_micro
        return msgspec.structs.replace(
            window,
            age_unit_ms=max(0, round(moment * 1_000.0)),
            ages=[
                AgedUnits(
                    from_age_s=from_age_s, units_micro=round(idle[place] * _MICRO), taken_micro=taken.get(place, 0)
                )
                for place, from_age_s in enumerate(AGE_CLASSES_S)
                if idle[place] or place in taken
            ],
        )

    def _happen(self, event: HostEvent) -> list[Change]:
        number = self._number[event.host]
        pool = int(self._pool_H[number])
        self._windows.pop(pool, None)
        self._usable_pools = None
        before = self._usable(number)
        self._book(number, pool, sign=-1)
        if event.action == "notice":
            self._is_noticed_H[number] = self._is_here_H[number]
        elif event.action == "update":
            self._units_H[number] = event.units
        else:
            is_here = event.action == "offer"
            if is_here and not self._is_here_H[number]:
                self._since_s_H[number] = event.at_s
                self._counts[pool].num_offers += 1
            if not is_here and self._is_here_H[number]:
                self._took(pool, before, age_s=event.at_s - float(self._since_s_H[number]))
            self._is_here_H[number] = is_here
            self._is_noticed_H[number] = False
        self._book(number, pool, sign=1)
        change = self._usable(number) - before
        return [Change(event.at_s, pool, change)] if change else []

    def _book(self, number: int, pool: int, *, sign: int) -> None:
        if self._is_here_H[number]:
            self._sums[pool].add(
                self._hosts[number],
                float(self._units_H[number]),
                is_noticed=bool(self._is_noticed_H[number]),
                sign=sign,
            )

    def _took(self, pool: int, units: float, *, age_s: float) -> None:
        counts = self._counts[pool]
        counts.num_reclaims += 1
        if units:
            place = bisect_right(AGE_CLASSES_S, age_s) - 1
            counts.taken_micro[place] = counts.taken_micro.get(place, 0) + round(units * _MICRO)

    def _usable(self, number: int) -> float:
        return float(self._units_H[number]) if self._is_here_H[number] and self._is_usable_H[number] else 0.0

    def _pool_window(self, pool: int) -> PoolWindow:
        sums, counts = self._sums[pool], self._counts[pool]
        return PoolWindow(
            accelerator=self.accelerators[pool],
            num_hosts=sums.num_hosts,
            units_micro=sums.units_micro,
            cpu_cores_micro=sums.cpu_cores_micro,
            memory_bytes=sums.memory_bytes,
            unusable=_labelled(sums.unusable),
            causes=_labelled(sums.causes),
            providers=_labelled(sums.providers),
            noticed_units_micro=sums.noticed_micro,
            num_offers=counts.num_offers,
            num_reclaims=counts.num_reclaims,
        )


def stays_of(hosts: Sequence[Host], events: Iterable[HostEvent]) -> tuple[tuple[str, ...], list[list[Stay]]]:
    """The pools by name, and the stays of their usable hosts; a host whose units change stays anew."""
    accelerators = tuple(sorted({host.accelerator for host in hosts}))
    stays: list[list[Stay]] = [[] for _ in accelerators]
    by_name = {host.name: host for host in hosts}
    units = {host.name: host.units for host in hosts}
    # Since when a host is offered, and since when with the units that it has.
    here = {host.name: (0.0, 0.0) for host in hosts if host.offered_at_start}

    def left(name: str, at_s: float) -> None:
        host, (since_s, from_s) = by_name[name], here[name]
        if host.unusable is None:
            stay = Stay(since_s, from_s, at_s, units[name], host.cpu_cores, float(host.memory_bytes))
            stays[accelerators.index(host.accelerator)].append(stay)

    for event in events:
        name, at_s = event.host, event.at_s
        if event.action == "offer":
            here.setdefault(name, (at_s, at_s))
        elif event.action == "reclaim" and name in here:
            left(name, at_s)
            del here[name]
        elif event.action == "update":
            if name in here:
                left(name, at_s)
                here[name] = (here[name][0], at_s)
            units[name] = event.units
    for name in here:
        left(name, float("inf"))
    return accelerators, stays


def _labelled(sums: Counter[str]) -> list[LabelledUnits]:
    return [LabelledUnits(label=label, units_micro=micro) for label, micro in sorted(sums.items()) if micro]
