"""Whether what is assigned is what was asked for, and the correction where it is not. Pure.

Routers on an expired target, requests that come too late for an upgrade, a router that never heard of the target: all
of them leave the mean assigned probability, over *all* requests, below the coverage. A bounded integral per cell makes
up for that. With t the coverage target, u the correction (what is asked for is u x t) and r the share of what was
asked for that was assigned:

    e = (t - assigned) / t = 1 - u r            u = u + GAIN x e, within [1 / MOST, MOST]

What a shift of the mix does is no error of this loop: shares are made for the mix anew at every tick. So r compares the
assigned probabilities of a window with those that the shares in force give for the *same* requests, which is exact and
without the noise of who happened to ask. The window's requests met the last target or, in its first moments, the one
before: whatever lies between the two is as it was asked for, so that a target on the move is no error either.

Conditional integration (Åström and Hägglund, PID Controllers, 1995, chapter 3): while an operator holds the coverage,
few requests came, or next to nothing was asked for, nothing is learned; while every share is 1 the correction does not
grow.
"""

from collections.abc import Sequence

from msgspec import Struct

from schemas.records import SegmentShare, SegmentTraffic
from schemas.records.fields import Share

GAIN = 0.3
MOST = 1.5
MIN_REQUESTS = 20
# Of all requests: below that the quotient is that of two roundings.
MIN_ASKED = 0.001
MICRO = 1_000_000


class Asked(Struct, frozen=True, kw_only=True):
    """Shares of one target, and whether they were too small for what was asked for, though all were 1."""

    shares: tuple[SegmentShare, ...]
    other_share: Share
    saturated: bool


def corrected(correction: float, window: Sequence[SegmentTraffic], asked: Sequence[Asked]) -> float:
    """Correction after a window whose requests met the targets ``asked``, the last one first."""
    num_requests = sum(traffic.num_requests for traffic in window)
    if num_requests < MIN_REQUESTS or not asked:
        return correction
    assigned = sum(traffic.probability_micro for traffic in window) / (MICRO * num_requests)
    expected = [_expected(window, target) / num_requests for target in asked]
    nearest = min(max(assigned, min(expected)), max(expected))
    if nearest < MIN_ASKED:
        return correction
    error = 1.0 - correction * assigned / nearest
    if error > 0.0 and asked[0].saturated:
        return correction
    return min(max(correction + GAIN * error, 1.0 / MOST), MOST)


def _expected(window: Sequence[SegmentTraffic], asked: Asked) -> float:
    """Sum of the probabilities that the shares give to the requests of a window."""
    shares = {listed.segment: listed.share for listed in asked.shares}
    return sum(traffic.num_allowed * shares.get(traffic.segment, asked.other_share) for traffic in window)
