"""Usable units of a cell by the age of their offers, as time passes. Pure; O(1) per offer added or taken away.

The age of an offer at a window's end ``E`` is ``max(0, E - since)``. Time alone moves it from class to class, and all
offers of one bucket of ``since`` move together:

    grain = gcd(window length, bounds of the classes)        bucket = ceil(since / grain)
    E - since >= bound   <=>   bucket <= (E - bound) / grain      as E and bound are whole multiples of the grain

So a window's end looks, for each bound, at the buckets that it has passed and no others, however many offers there are.

Shape legend: M rows of several hosts, C columns of a row, K keys (accelerator and bucket).
"""

from bisect import bisect_right
from collections.abc import Iterator
from math import gcd

import numpy as np
from numpy.typing import NDArray

from schemas.age_classes import AGE_CLASSES_MS
from streams.ingest.bounds import MICRO
from streams.ingest.offers import GROUP, SINCE, UNITS, Groups

_HALF_BITS = 32
_LOW_HALF = (1 << _HALF_BITS) - 1
# Quantities are below 2^63 and what is left of a bucket's time below 2^15: so many sums of their products fit an int64.
_MAX_ROWS = 1 << 16


class _Aged:
    """Usable units (times 10^6) of one accelerator: place 0 has those whose time has not come, place i + 1 class i.

    ``moment`` sums units times ``since`` over those whose time has come.
    """

    __slots__ = ("moment", "units")

    def __init__(self) -> None:
        self.units = [0] * (len(AGE_CLASSES_MS) + 1)
        self.moment = 0


class Ages:
    """Running sums of one cell. ``advance`` comes first in every window, then ``update``."""

    def __init__(self, *, window_ms: int) -> None:
        self._grain_ms = gcd(window_ms, *AGE_CLASSES_MS)
        self._bounds = [bound_ms // self._grain_ms for bound_ms in AGE_CLASSES_MS]
        # Units and units times since of each bucket, by accelerator.
        self._buckets: dict[int, dict[str, tuple[int, int]]] = {}
        self._pools: dict[str, _Aged] = {}
        # The last window's end, in grains.
        self._end = 0

    def advance(self, end_ms: int) -> None:
        """Let time pass to a window's end."""
        before, self._end = self._end, end_ms // self._grain_ms
        if not self._buckets:
            return
        for place, bound in enumerate(self._bounds):
            for bucket in range(before - bound + 1, self._end - bound + 1):
                for accelerator, (units, moment) in self._buckets.get(bucket, {}).items():
                    aged = self._pools[accelerator]
                    aged.units[place] -= units
                    aged.units[place + 1] += units
                    if place == 0:
                        aged.moment += moment

    def update(self, *, gone_MC: NDArray[np.int64], come_MC: NDArray[np.int64], groups: Groups) -> None:
        """Take away rows as they were added before, and add others."""
        rows_MC = np.concatenate((gone_MC, come_MC))
        sign_M = np.repeat(np.array([-1, 1]), (len(gone_MC), len(come_MC)))
        is_usable_M = groups.is_usable(rows_MC[:, GROUP])
        rows_MC, sign_M = rows_MC[is_usable_M], sign_M[is_usable_M]
        for start in range(0, len(rows_MC), _MAX_ROWS):
            part = slice(start, start + _MAX_ROWS)
            for accelerator, bucket, units, moment in self._sums(rows_MC[part], sign_M[part], groups):
                self._add(accelerator, bucket, units, moment)

    def units_by_class(self, accelerator: str) -> list[int]:
        """Usable units (times 10^6) in each class at the last window's end."""
        units = self._pools[accelerator].units if accelerator in self._pools else _Aged().units
        return [units[0] + units[1], *units[2:]]

    def unit_ms(self, accelerator: str) -> int:
        """Sum of units (whole) times age over usable offers, rounded down."""
        aged = self._pools.get(accelerator)
        return (self._end * self._grain_ms * sum(aged.units[1:]) - aged.moment) // MICRO if aged is not None else 0

    def _sums(
        self, rows_MC: NDArray[np.int64], sign_M: NDArray[np.int64], groups: Groups
    ) -> Iterator[tuple[str, int, int, int]]:
        """Accelerator, bucket, units and units times since of each key."""
        if not len(rows_MC):
            return
        names = groups.accelerators
        bucket_M = -(-rows_MC[:, SINCE] // self._grain_ms)
        key_M = bucket_M * len(names) + groups.accelerator_of(rows_MC[:, GROUP])
        order_M = np.argsort(key_M)
        key_M = key_M[order_M]
        first_K = np.flatnonzero(np.diff(key_M, prepend=key_M[0] - 1))
        units_M = rows_MC[order_M, UNITS]
        sign_M = sign_M[order_M]
        high_M, low_M = (units_M >> _HALF_BITS) * sign_M, (units_M & _LOW_HALF) * sign_M
        # since = bucket x grain - rest, and the rest is small.
        rest_M = (bucket_M * self._grain_ms - rows_MC[:, SINCE])[order_M]
        sums = [
            np.add.reduceat(values_M, first_K).tolist() for values_M in (high_M, low_M, high_M * rest_M, low_M * rest_M)
        ]
        for key, high, low, high_rest, low_rest in zip(key_M[first_K].tolist(), *sums, strict=True):
            bucket, accelerator = divmod(key, len(names))
            units = (high << _HALF_BITS) + low
            rest = (high_rest << _HALF_BITS) + low_rest
            yield names[accelerator], bucket, units, units * bucket * self._grain_ms - rest

    def _add(self, accelerator: str, bucket: int, units: int, moment: int) -> None:
        if units == 0 and moment == 0:
            return
        pools = self._buckets.setdefault(bucket, {})
        held_units, held_moment = pools.get(accelerator, (0, 0))
        pools[accelerator] = (held_units + units, held_moment + moment)
        if pools[accelerator] == (0, 0):
            del pools[accelerator]
        if not pools:
            del self._buckets[bucket]
        aged = self._pools.setdefault(accelerator, _Aged())
        place = bisect_right(self._bounds, self._end - bucket)
        aged.units[place] += units
        if place > 0:
            aged.moment += moment
        if units < 0 and not any(aged.units):
            del self._pools[accelerator]
