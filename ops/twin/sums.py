"""What was served in a window so far, summed over its moments. Pure.

Shape legend: B buckets of a latency histogram.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ops.twin.moment import Moment
from ops.twin.queues import Flow


@dataclass
class Work:
    """Work units of one lever by what became of them; ``unit_s`` are unit-seconds spent on it, ``load_s`` seconds of
    the whole route."""

    offered: float = 0.0
    held: float = 0.0
    missed: float = 0.0
    closed: float = 0.0
    unit_s: float = 0.0
    load_s: float = 0.0

    @property
    def done(self) -> float:
        """Work that counted."""
        return max(0.0, self.offered - self.held - self.missed - self.closed)

    @property
    def done_share(self) -> float:
        """Share of the work offered that counted."""
        return self.done / self.offered if self.offered > 0.0 else 0.0

    @property
    def sent_share(self) -> float:
        """Share of the work offered that reached a replica."""
        return max(0.0, 1.0 - self.held / self.offered) if self.offered > 0.0 else 0.0

    def add(self, flow: Flow, length_s: float, *, num_units: float) -> None:
        """Add a moment of constant flow on so many units."""
        self.offered += (flow.sent_s + flow.held_s) * length_s
        self.held += flow.held_s * length_s
        self.missed += flow.missed_s * length_s
        self.load_s += flow.load * length_s
        # What was dropped unscored did not keep a unit busy.
        self.unit_s += flow.load * num_units * length_s * (1.0 - flow.missed_s / flow.sent_s if flow.sent_s else 0.0)

    def sheds(self, *, units_per_item: float) -> dict[str, int]:
        """Items dropped by reason as whole numbers, together at most what was offered."""
        sheds: dict[str, int] = {}
        left = round(self.offered / units_per_item)
        for reason, units in (("pressure", self.held), ("gate_closed", self.closed), ("deadline", self.missed)):
            sheds[reason] = min(left, round(units / units_per_item))
            left -= sheds[reason]
        return sheds


@dataclass
class Sums:
    """A window's sums; distributions are weighted by the seconds they held."""

    latency_B: NDArray[np.float64]
    wide_B: NDArray[np.float64]
    powerful_B: NDArray[np.float64]
    served_s: float = 0.0
    wide: Work = field(default_factory=Work)
    powerful: Work = field(default_factory=Work)
    usable_unit_s: float = 0.0
    base_late: float = 0.0

    @classmethod
    def empty(cls, num_buckets: int) -> "Sums":
        return cls(np.zeros(num_buckets), np.zeros(num_buckets), np.zeros(num_buckets))

    def add(self, moment: Moment, length_s: float, *, rate_s: float) -> None:
        """Add a moment that held for so long at so many requests per second."""
        if length_s <= 0.0:
            return
        self.latency_B += length_s * moment.latency_B
        self.wide_B += length_s * moment.wide_B
        self.powerful_B += length_s * moment.powerful_B
        self.served_s += length_s
        self.wide.add(moment.wide, length_s, num_units=moment.wide_units)
        self.powerful.add(moment.powerful, length_s, num_units=moment.powerful_units)
        self.base_late += moment.base_late_share * rate_s * length_s
