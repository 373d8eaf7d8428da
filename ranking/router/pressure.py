"""Backing off from a pressed replica, lowest value first, without a controller.

Shape legend: C chunks.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray


class Throttle:
    """Share of optional units that one replica may be sent.

    cap(p) = 1 for p <= knee, else (1 - p) / (1 - knee). An answer with pressure p sets quota <- min(quota, cap(p)) at
    once; the quota comes back by ``recovery_per_s``, additive, so that many routers do not return together. Units
    above the quota are held by a credit: each offered unit adds ``quota``, each unit sent takes 1.
    """

    def __init__(self, *, knee: float, recovery_per_s: float) -> None:
        self._knee = knee
        self._recovery_per_s = recovery_per_s
        self._quota = 1.0
        self._at_ms = 0.0
        self._credit_units = 0.0
        self.last_pressure = 0.0

    def answer(self, pressure: float, now_ms: float) -> None:
        """Note a replica's pressure in [0, 1]."""
        cap = 1.0 if pressure <= self._knee else (1.0 - pressure) / (1.0 - self._knee)
        self._quota = min(self.quota(now_ms), cap)
        self._at_ms = now_ms
        self.last_pressure = pressure

    def quota(self, now_ms: float) -> float:
        """The share now, in [0, 1]."""
        if self._quota >= 1.0:
            return 1.0
        return min(1.0, self._quota + self._recovery_per_s * max(0.0, now_ms - self._at_ms) / 1000.0)

    def offer(self, units: int, now_ms: float) -> float:
        """Note units offered; returns the units that may be sent now (infinite while nothing is held back)."""
        quota = self.quota(now_ms)
        if quota >= 1.0:
            self._credit_units = 0.0
            return float("inf")
        # Bounded by one offer: what was not used in a quiet moment is not a right to a burst.
        self._credit_units = min(self._credit_units + quota * units, float(units))
        return self._credit_units

    def sent(self, units: int) -> None:
        """Note units sent; without effect while nothing is held back."""
        self._credit_units = max(0.0, self._credit_units - units)


class ValueGate:
    """Which chunks of a request are sent when only a share may be: those of the highest value per cost.

    Shedding must take the lowest value over all requests, not over each: the bar is the (1 - quota) quantile of the
    value per cost of the last ``memory`` chunks offered.
    """

    def __init__(self, *, memory: int = 512) -> None:
        self._recent: deque[float] = deque(maxlen=memory)

    def admit(
        self, values_C: NDArray[np.int64], units_C: NDArray[np.int64], throttle: Throttle, now_ms: float
    ) -> list[bool]:
        """Whether each chunk is sent, in the order given; takes the units from the throttle's credit."""
        density_C = values_C / units_C
        self._recent.extend(density_C.tolist())
        allowed = throttle.offer(int(units_C.sum()), now_ms)
        if allowed == float("inf"):
            return [True] * len(values_C)
        bar = float(np.quantile(np.fromiter(self._recent, dtype=np.float64), 1.0 - throttle.quota(now_ms)))
        admitted = [False] * len(values_C)
        # Stable, so that of equals the shallower goes first.
        for chunk in np.argsort(-density_C, kind="stable").tolist():
            units = int(units_C[chunk])
            if density_C[chunk] < bar or units > allowed:
                break
            admitted[chunk] = True
            allowed -= units
            throttle.sent(units)
        return admitted
