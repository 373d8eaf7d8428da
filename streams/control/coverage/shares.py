"""Which segments the coverage goes to: probabilities that sum up to it. Pure.

With w_g the share of requests of segment g, a_g the share of them that may be upgraded, and c the coverage asked for:

    reach    R   = sum of w_g a_g                       the most that there can be
    equal    e   = c / R, at most 1                     what every segment would have without an order
    floor        = exploration_share x e                what every segment keeps, so that it can be learned from
    ceiling      = 1 - exploration_share x (1 - e)      and what it keeps that is not upgraded, for the same reason
    ranked   s_g = floor + what is left by water-filling: the best estimate first, up to the ceiling, equals alike
    share        = e + k (s_g - e)                      sum of w_g a_g share_g = c for every k

A segment of which nothing is estimated keeps the equal share. A segment may be owed a higher floor, as a share of e.
The order counts in full (k = 1) where the mix is known well enough, and less where a guess of it from few requests
would miss the coverage:

    k = min(1, MIX_ERROR x sqrt(N) / d)

with N the requests that the mix is known from and d the deviation of a_g s_g among requests, so that the standard error
of what is assigned, k d / sqrt(N), stays within MIX_ERROR.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from schemas.segments import OTHER_SEGMENT
from streams.control.coverage.mix import Traffic

# Half a point: four of them are the two points within which coverage is promised.
MIX_ERROR = 0.005
# Probabilities are counted in millionths.
DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Probability by segment in order of names, that of all others, and the coverage that they lead to."""

    by_segment: tuple[tuple[str, float], ...]
    other: float
    reached: float

    def of(self, segment: str) -> float:
        """Probability of one segment."""
        return next((share for name, share in self.by_segment if name == segment), self.other)


def reach(traffic: Iterable[Traffic]) -> float:
    """Share of all requests that may be upgraded; all, where nobody has asked yet."""
    found = [segment.weight * segment.allowed_share for segment in traffic]
    return math.fsum(found) if found else 1.0


def shares_for(
    coverage: float,
    traffic: tuple[Traffic, ...],
    *,
    exploration_share: float,
    estimates: Mapping[str, float],
    num_effective: float,
    owed: Mapping[str, float] = MappingProxyType({}),
) -> Shares:
    """Shares that lead to ``coverage`` in [0, 1], or to as much of it as can be reached.

    ``estimates`` are upper bounds of value per cost by segment; one that is no finite number counts as none. ``owed``
    are floors of segments as shares of e.
    """
    reachable = reach(traffic)
    equal = 1.0 if coverage >= reachable else coverage / reachable
    floors = {
        segment.segment: equal * min(1.0, max(exploration_share, owed.get(segment.segment, 0.0))) for segment in traffic
    }
    known = [
        segment
        for segment in traffic
        if segment.segment != OTHER_SEGMENT and math.isfinite(estimates.get(segment.segment, math.nan))
    ]
    ranked = dict.fromkeys((segment.segment for segment in traffic), equal)
    ranked |= _ranked(known, estimates, equal=equal, floors=floors, ceiling=1.0 - exploration_share * (1.0 - equal))
    order = _order(traffic, ranked, num_effective=num_effective)
    shares = {name: round(min(1.0, equal + order * (share - equal)), DECIMALS) for name, share in ranked.items()}
    other = shares.pop(OTHER_SEGMENT, round(equal, DECIMALS))
    reached = math.fsum(
        segment.weight * segment.allowed_share * shares.get(segment.segment, other) for segment in traffic
    )
    return Shares(by_segment=tuple(sorted(shares.items())), other=other, reached=reached if traffic else other)


def _ranked(
    known: list[Traffic], estimates: Mapping[str, float], *, equal: float, floors: Mapping[str, float], ceiling: float
) -> dict[str, float]:
    """Shares of the segments with an estimate, which together get what they would have in equal shares."""
    left = math.fsum((equal - floors[segment.segment]) * segment.weight * segment.allowed_share for segment in known)
    shares: dict[str, float] = {}
    for estimate in sorted({estimates[segment.segment] for segment in known}, reverse=True):
        alike = [segment for segment in known if estimates[segment.segment] == estimate]
        room = math.fsum(
            (ceiling - floors[segment.segment]) * segment.weight * segment.allowed_share for segment in alike
        )
        # One that asks no more has room for nothing; it stays on the floor until it asks again.
        filled = min(1.0, left / room) if room > 0.0 else 0.0
        left = max(0.0, left - room * filled)
        for segment in alike:
            floor = floors[segment.segment]
            shares[segment.segment] = floor + (ceiling - floor) * filled
    return shares


def _order(traffic: tuple[Traffic, ...], ranked: Mapping[str, float], *, num_effective: float) -> float:
    """How much the order counts, in [0, 1], by the formula above."""
    assigned = [(segment.weight, segment.allowed_share * ranked[segment.segment]) for segment in traffic]
    mean = math.fsum(weight * share for weight, share in assigned)
    deviation = math.sqrt(math.fsum(weight * (share - mean) * (share - mean) for weight, share in assigned))
    known = MIX_ERROR * math.sqrt(num_effective)
    return 1.0 if known >= deviation else known / deviation
