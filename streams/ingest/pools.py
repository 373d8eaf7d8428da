"""Running sums of what the hosts of a cell offer, by accelerator. Pure; O(1) per offer added or taken away.

Shape legend: G groups of offers, M rows of several hosts, S sums of a group.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.records import Offer, PoolWindow
from streams.ingest.ages import Ages
from streams.ingest.bounds import OTHER, largest
from streams.ingest.losses import Losses, Step, losses
from streams.ingest.offers import CPU_CORES, GROUP, IS_FIRST, MEMORY_BYTES, UNITS, Groups, unpack
from streams.ingest.pool import Events, Pool

# Pools that one window lists, so that it stays well under the broker's record limit of 1 MiB.
MAX_POOLS = 128

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


class Pools:
    """Pools of one cell: what every live host offers, summed up by group of offers, and so by accelerator.

    Whoever holds packed rows of live hosts must ask ``renumber`` for others when ``is_full`` says so.
    """

    def __init__(self, *, window_ms: int) -> None:
        self._groups = Groups()
        self._sums_GS = np.zeros((0, _NUM_SUMS), dtype=np.int64)
        self._ages = Ages(window_ms=window_ms)
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

    def update(self, end_ms: int, *, gone: Iterable[bytes], come: Iterable[bytes]) -> None:
        """Bring the sums to a window's end: take away rows as they were added before, and add others."""
        gone_MC, come_MC = unpack(gone), unpack(come)
        num_groups = len(self._groups)
        grown_GS = np.zeros((num_groups, _NUM_SUMS), dtype=np.int64)
        grown_GS[: len(self._sums_GS)] = self._sums_GS
        grown_GS += _sums(come_MC, num_groups)
        grown_GS -= _sums(gone_MC, num_groups)
        self._sums_GS = grown_GS
        self._ages.advance(end_ms)
        self._ages.update(gone_MC=gone_MC, come_MC=come_MC, groups=self._groups)

    def losses(self, steps: Sequence[Step]) -> Losses:
        """What hosts lost in their steps through a window."""
        return losses(steps, self._groups)

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

    def windows(self, events: Events) -> list[PoolWindow]:
        """Every pool at the last window's end, in order of accelerators, with the events of the window.

        A pool that has events but no host left is listed too. Beyond MAX_POOLS the smallest stand together as
        ``(other)``.
        """
        pools = self._by_accelerator()
        for name in events.accelerators() - pools.keys():
            pools[name] = Pool()
        for name, pool in pools.items():
            pool.note(name, events)
        kept, rest = largest({name: pool.units for name, pool in pools.items()}, MAX_POOLS)
        listed = [pools[name].window(name) for name in kept]
        if rest:
            folded = Pool()
            for name in rest:
                folded.fold(pools[name])
            listed.append(folded.window(OTHER))
        return sorted(listed, key=lambda pool: pool.accelerator)

    def _by_accelerator(self) -> dict[str, Pool]:
        pools: dict[str, Pool] = {}
        live = np.flatnonzero(self._sums_GS[:, _ROWS])
        for number, sums in zip(live.tolist(), self._sums_GS[live].tolist(), strict=True):
            group = self._groups[number]
            pool = pools.get(group.accelerator)
            if pool is None:
                pool = pools[group.accelerator] = Pool()
            pool.num_hosts += sums[_HOSTS]
            pool.cpu_cores += _quantity(sums, _CPU_CORES)
            pool.memory_bytes += _quantity(sums, _MEMORY_BYTES)
            pool.add_units(group, _quantity(sums, _UNITS))
        for name, pool in pools.items():
            pool.units_by_class = self._ages.units_by_class(name)
            pool.unit_ms = self._ages.unit_ms(name)
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
