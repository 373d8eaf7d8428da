"""What a tick's coverage is decided from, and the words for why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from schemas.records import CellLimits, SegmentTraffic
from streams.control.hold import Hold

CoverageReason = Literal[
    "",
    "absurd",
    "no_capacity",
    "blind",
    "guardrail",
    "operator",
    "capacity",
    "arms",
    "latency",
    "shedding",
    "probing",
    "rising",
    "steady",
]


@dataclass(frozen=True, kw_only=True)
class CoverageInputs:
    """What one decision is made from.

    ``usable_units`` are those that SBM has of all pools, without those announced to be taken back. ``units_per_unit_s``
    is the measured speed of the powerful pool in work units, ``units_per_upgrade`` what one request costs there (0:
    nothing says it), ``planned_rate_per_s`` the request rate to plan for (0: none ever seen). ``num_requests`` and
    ``segments`` are those of the window; ``powerful_p99_ms``, ``num_samples`` and ``shed_share`` of the upgrades
    offered are of the powerful route in the last ``num_windows`` windows merged, ``num_offered`` are the upgrades of
    the last of them alone. ``estimates`` are upper bounds of value per cost by segment. ``at_base`` are segments that a
    guardrail takes back to base, ``(all)`` the whole cell; ``owed`` are floors of segments (``shares``).
    """

    limits: CellLimits
    usable_units: float
    units_per_unit_s: float
    units_per_upgrade: float
    planned_rate_per_s: float
    num_routers: int
    num_requests: int
    segments: tuple[SegmentTraffic, ...]
    powerful_p99_ms: float | None
    num_samples: int
    shed_share: float
    num_windows: int = 1
    num_offered: int = 0
    estimates: Mapping[str, float] = field(default_factory=dict)
    at_base: frozenset[str] = frozenset()
    owed: Mapping[str, float] = field(default_factory=dict)
    hold: Hold | None = None

    @property
    def limit_ms(self) -> float:
        """Limit of the powerful route's p99."""
        return self.limits.powerful_limit_ms or self.limits.latency_limit_ms
