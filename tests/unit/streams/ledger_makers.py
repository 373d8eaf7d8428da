"""Pools with a past, for the tests of the ledger."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.age_classes import AGE_CLASSES_S
from schemas.records import AgedUnits, LabelledUnits, PoolWindow
from streams.control.ledger.pool_ledger import MICRO, PoolLedger, updated

WINDOW_MS = 10_000
Lifetimes = Callable[[np.random.Generator, int], NDArray[np.float64]]


def aged(from_age_s: int, units: float = 0.0, *, taken: float = 0.0) -> AgedUnits:
    return AgedUnits(from_age_s=from_age_s, units_micro=round(units * MICRO), taken_micro=round(taken * MICRO))


def pool(*ages: AgedUnits, num_hosts: int = 1, **changes: Any) -> PoolWindow:
    """A pool whose usable units are those of ``ages``."""
    units_micro = sum(each.units_micro for each in ages)
    fields: dict[str, Any] = {
        "accelerator": "h200", "num_hosts": num_hosts, "units_micro": units_micro, "cpu_cores_micro": 0,
        "memory_bytes": 0, "unusable": [], "causes": [], "providers": [], "ages": list(ages),
    }  # fmt: skip
    return PoolWindow(**fields | changes)


def unusable(label: str, units: float) -> LabelledUnits:
    return LabelledUnits(label=label, units_micro=round(units * MICRO))


def ledger_of(*windows: PoolWindow, window_ms: int = WINDOW_MS) -> PoolLedger:
    ledger = None
    for window in windows:
        ledger = updated(ledger, window, window_ms=window_ms)
    assert ledger is not None
    return ledger


class Fleet:
    """Offers of one unit each that come while ``arrivals_s`` last and are taken back after a random lifetime."""

    def __init__(self, lifetimes: Lifetimes, *, num_offers: int, arrivals_s: float, until_s: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._came_s = rng.uniform(0.0, arrivals_s, num_offers)
        self._life_s = lifetimes(rng, num_offers)
        self._until_s = until_s

    def windows(self) -> Iterator[PoolWindow]:
        """What ingest would say of it, window by window."""
        window_s = WINDOW_MS // 1_000
        for end_s in range(window_s, self._until_s + 1, window_s):
            ends_s = self._came_s + self._life_s
            alive = (self._came_s <= end_s) & (ends_s > end_s)
            taken = (ends_s > end_s - window_s) & (ends_s <= end_s)
            units, lost = _by_class(end_s - self._came_s[alive]), _by_class(self._life_s[taken])
            ages = [aged(from_s, units[from_s], taken=lost[from_s]) for from_s in AGE_CLASSES_S]
            yield pool(*ages, num_hosts=int(alive.sum()))

    def ages_s(self) -> NDArray[np.float64]:
        """Ages of those alive at the end."""
        alive = (self._came_s <= self._until_s) & (self._came_s + self._life_s > self._until_s)
        return self._until_s - self._came_s[alive]

    def ended_s(self) -> NDArray[np.float64]:
        """Lifetimes of those that ended."""
        return self._life_s[self._came_s + self._life_s <= self._until_s]


def _by_class(ages_s: NDArray[np.float64]) -> dict[int, int]:
    counts, _ = np.histogram(ages_s, bins=[*AGE_CLASSES_S, np.inf])
    return dict(zip(AGE_CLASSES_S, counts.tolist(), strict=True))
