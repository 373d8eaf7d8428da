"""Running sums of what the hosts of a cell offer, by accelerator. Pure; O(1) per offer added or taken away.

Shape legend: G groups of offers, M rows of several hosts, S sums of a group.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.records import Offer, PoolWindow
from streams.ingest.bounds import OTHER, bounded, labelled, largest
from streams.ingest.offers import CPU_CORES, GROUP, IS_FIRST, MEMORY_BYTES, UNITS, Group, Groups, unpack

# Limits of what one window lists, so that it stays well under the broker's record limit of 1 MiB.
MAX_POOLS = 128
MAX_PROVIDERS = 16
# A vocabulary of the contract, with room to grow.
MAX_WORDS = 16


# Quantities are below 2^63: their upper and lower halves are summed up apart, so that no sum overflows, nor leaves what
# a float holds exactly (2^53), with up to 2^20 rows at once.
_HALF_BITS = 32
_MAX_ROWS = 1 << 20
# Sums of a group: its rows, rows that are the first of their accelerator, and both halves of each quantity.
_ROWS, _HOSTS, _UNITS, _CPU_CORES, _MEMORY_BYTES = 0, 1, 2, 4, 6
_NUM_SUMS = 8
# Hosts whose offers are packed at once: few enough that what was fetched into the cache for the first column is there
# for the last one (measured: a third of the time for all 2,000 hosts of a cell at once).
_PACKED_HOSTS = 256
# Groups without rows are forgotten once there are this many groups, or twice as many as were left the last time.
_MIN_GROUPS = 4_096


class Pool:
    """Sums of one accelerator; whole numbers, quantities times 10^6. A label stands there only if it has units."""

    __slots__ = ("causes", "cpu_cores", "memory_bytes", "noticed", "num_hosts", "providers", "units", "unusable")

    def __init__(self) -> None:
        self.num_hosts = 0
        self.units = 0
        self.cpu_cores = 0
        self.memory_bytes = 0
        self.noticed = 0
        self.unusable: defaultdict[str, int] = defaultdict(int)
        self.causes: defaultdict[str, int] = defaultdict(int)
        self.providers: defaultdict[str, int] = defaultdict(int)

    def add(self, group: Group, sums: Sequence[int]) -> None:
        """Add the offers of one group."""
        units = _quantity(sums, _UNITS)
        self.num_hosts += sums[_HOSTS]
        self.units += units
        self.cpu_cores += _quantity(sums, _CPU_CORES)
        self.memory_bytes += _quantity(sums, _MEMORY_BYTES)
        if not units:
            return
        self.causes[group.cause] += units
        self.providers[group.provider] += units
        if group.unusable is not None:
            self.unusable[group.unusable] += units
        if group.noticed:
            self.noticed += units

    def fold(self, other: "Pool") -> None:
        """Add another pool's sums; a host that offers both is then counted twice."""
        self.num_hosts += other.num_hosts
        self.units += other.units
        self.cpu_cores += other.cpu_cores
        self.memory_bytes += other.memory_bytes
        self.noticed += other.noticed
        for mine, theirs in (
            (self.unusable, other.unusable),
            (self.causes, other.causes),
            (self.providers, other.providers),
        ):
            for label, units in theirs.items():
                mine[label] += units


class Pools:
    """Pools of one cell: what every live host offers, summed up by group of offers, and so by accelerator.

    Whoever holds packed rows of live hosts must ask ``renumber`` for others when ``is_full`` says so.
    """

    def __init__(self) -> None:
        self._groups = Groups()
        self._sums_GS = np.zeros((0, _NUM_SUMS), dtype=np.int64)
        self._max_groups = _MIN_GROUPS

    @property
    def is_full(self) -> bool:
        """Whether so many groups are known that those without offers should be forgotten."""
        return len(self._groups) > self._max_groups

    def pack(self, offers_by_host: Sequence[Sequence[Offer]]) -> list[bytes]:
        """The rows of each host's offers, to be added and taken away."""
        return [
            rows
            for start in range(0, len(offers_by_host), _PACKED_HOSTS)
            for rows in self._groups.pack(offers_by_host[start : start + _PACKED_HOSTS])
        ]

    def update(self, *, gone: Iterable[bytes], come: Iterable[bytes]) -> None:
        """Take away rows as they were added before, and add others."""
        num_groups = len(self._groups)
        grown_GS = np.zeros((num_groups, _NUM_SUMS), dtype=np.int64)
        grown_GS[: len(self._sums_GS)] = self._sums_GS
        grown_GS += _sums(unpack(come), num_groups)
        grown_GS -= _sums(unpack(gone), num_groups)
        self._sums_GS = grown_GS

    def renumber(self, packed: Sequence[bytes]) -> list[bytes]:
        """Forget groups without offers; returns the rows of every live host as they are numbered from now on."""
        live = np.flatnonzero(self._sums_GS[:, _ROWS])
        new_number = np.full(len(self._groups), -1, dtype=np.int64)
        new_number[live] = np.arange(len(live))
        self._groups = Groups(self._groups[number] for number in live.tolist())
        self._sums_GS = self._sums_GS[live]
        self._max_groups = max(_MIN_GROUPS, 2 * len(live))
        renumbered = []
        for rows in packed:
            rows_MC = unpack([rows]).copy()
            rows_MC[:, GROUP] = new_number[rows_MC[:, GROUP]]
            renumbered.append(rows_MC.tobytes())
        return renumbered

    def windows(self, *, num_offers: Mapping[str, int], num_reclaims: Mapping[str, int]) -> list[PoolWindow]:
        """Every pool, in order of accelerators, with the events of the window beside it.

        A pool that has events but no host left is listed too. Beyond MAX_POOLS the smallest stand together as
        ``(other)``.
        """
        pools = self._by_accelerator()
        sizes = {name: pools[name].units if name in pools else 0 for name in {*pools, *num_offers, *num_reclaims}}
        kept, rest = largest(sizes, MAX_POOLS)
        listed = [
            _window(name, pools.get(name) or Pool(), num_offers.get(name, 0), num_reclaims.get(name, 0))
            for name in kept
        ]
        if rest:
            folded = Pool()
            for name in rest:
                folded.fold(pools.get(name) or Pool())
            offers, reclaims = (sum(counts.get(name, 0) for name in rest) for counts in (num_offers, num_reclaims))
            listed.append(_window(OTHER, folded, offers, reclaims))
        return sorted(listed, key=lambda pool: pool.accelerator)

    def _by_accelerator(self) -> dict[str, Pool]:
        pools: dict[str, Pool] = {}
        live = np.flatnonzero(self._sums_GS[:, _ROWS])
        for number, sums in zip(live.tolist(), self._sums_GS[live].tolist(), strict=True):
            group = self._groups[number]
            pool = pools.get(group.accelerator)
            if pool is None:
                pool = pools[group.accelerator] = Pool()
            pool.add(group, sums)
        return pools


def _sums(rows_MC: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    """Sums by group, int64 [G, S]."""
    sums_GS = np.zeros((num_groups, _NUM_SUMS), dtype=np.int64)
    for start in range(0, len(rows_MC), _MAX_ROWS):
        part_MC = rows_MC[start : start + _MAX_ROWS]
        group_M = part_MC[:, GROUP]
        sums_GS[:, _ROWS] += np.bincount(group_M, minlength=num_groups)
        sums_GS[:, _HOSTS] += _summed(group_M, part_MC[:, IS_FIRST], num_groups)
        for place, column in ((_UNITS, UNITS), (_CPU_CORES, CPU_CORES), (_MEMORY_BYTES, MEMORY_BYTES)):
            quantity_M = part_MC[:, column]
            sums_GS[:, place] += _summed(group_M, quantity_M >> _HALF_BITS, num_groups)
            sums_GS[:, place + 1] += _summed(group_M, quantity_M & ((1 << _HALF_BITS) - 1), num_groups)
    return sums_GS


def _summed(group_M: NDArray[np.int64], values_M: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    # The sums are floats, but exact: see _HALF_BITS.
    return np.bincount(group_M, weights=values_M, minlength=num_groups).astype(np.int64)


def _quantity(sums: Sequence[int], place: int) -> int:
    """A quantity of both its halves; Python's integers, as it may be larger than 2^63."""
    return (sums[place] << _HALF_BITS) + sums[place + 1]


def _window(accelerator: str, pool: Pool, num_offers: int, num_reclaims: int) -> PoolWindow:
    return PoolWindow(
        accelerator=accelerator,
        num_hosts=pool.num_hosts,
        units_micro=bounded(pool.units),
        cpu_cores_micro=bounded(pool.cpu_cores),
        memory_bytes=bounded(pool.memory_bytes),
        unusable=labelled(pool.unusable, limit=MAX_WORDS),
        causes=labelled(pool.causes, limit=MAX_WORDS),
        providers=labelled(pool.providers, limit=MAX_PROVIDERS),
        noticed_units_micro=bounded(pool.noticed),
        num_offers=num_offers,
        num_reclaims=num_reclaims,
    )
