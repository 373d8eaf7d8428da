"""Who asks: the mix of segments, and how many of each may be upgraded at all, from the counts of windows. Pure.

Two memories, as two things change at different paces. Which segments ask may shift within minutes:

    r_g = f r_g + n_g         w_g = r_g / sum of r        f = 1 - RECENT x min(1, n / FULL_WINDOW)

Whose arm allows an upgrade is drawn once per user and hardly moves; a share of few requests leans on that of the cell:

    a_g = (allowed_g + PRIOR x a) / (seen_g + PRIOR)      both sums faded by SETTLED in place of RECENT

Windows of fewer than FULL_WINDOW requests fade the past by less, so that a mix is never guessed from a handful. What it
is known from, as a number of requests that are all weighed alike (Kish, Survey Sampling, 1965): (sum of r)^2 / q with
q = f^2 q + n.
"""

import math
from dataclasses import dataclass

from msgspec import Struct

from schemas.records import SegmentTraffic
from schemas.records.fields import Name, Quantity
from schemas.segments import OTHER_SEGMENT

# Ten windows after a shift what came before counts for 0.65^10, about a hundredth.
RECENT = 0.35
# Fifty windows.
SETTLED = 0.02
FULL_WINDOW = 50
PRIOR = 20.0
MAX_SEGMENTS = 64
# A segment of which less than that is remembered is forgotten.
LEAST_SEEN = 0.5
# More requests of one segment in one window are counted as so many: sums stay within what a state may hold.
MAX_COUNTED = 10**9
# And so do those of all others together.
MAX_QUANTITY = 1e12


class SegmentMemory(Struct, frozen=True, kw_only=True):
    """Faded counts of one segment: recent requests, and of the longer memory all and those allowed."""

    segment: Name
    recent: Quantity
    seen: Quantity
    allowed: Quantity


class Mix(Struct, frozen=True, kw_only=True):
    """Segments in order of names, and the faded sum of squared weights."""

    segments: tuple[SegmentMemory, ...] = ()
    squares: Quantity = 0.0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """One segment's share of all requests, and the share of it that may be upgraded."""

    segment: str
    weight: float
    allowed_share: float


def updated(mix: Mix, window: tuple[SegmentTraffic, ...]) -> Mix:
    """Mix after one more window, each of whose segments is listed once."""
    new = {traffic.segment: _counted(traffic) for traffic in window}
    num_requests = sum(num for num, _ in new.values())
    if num_requests <= 0:
        return mix
    fullness = min(1.0, num_requests / FULL_WINDOW)
    recent, settled = 1.0 - RECENT * fullness, 1.0 - SETTLED * fullness
    held = {memory.segment: memory for memory in mix.segments}
    memories = []
    for segment in sorted(held.keys() | new.keys()):
        old = held.get(segment, _nothing(segment))
        num, num_allowed = new.get(segment, (0, 0))
        memories.append(
            SegmentMemory(
                segment=segment,
                recent=recent * old.recent + num,
                seen=settled * old.seen + num,
                allowed=settled * old.allowed + num_allowed,
            )
        )
    return Mix(segments=_bounded(memories), squares=min(MAX_QUANTITY, recent * recent * mix.squares + num_requests))


def traffic_of(mix: Mix) -> tuple[Traffic, ...]:
    """The segments as they are expected to ask next, in order of names; none where nothing was seen."""
    total = math.fsum(memory.recent for memory in mix.segments)
    seen = math.fsum(memory.seen for memory in mix.segments)
    if total <= 0.0 or seen <= 0.0:
        return ()
    allowed_share = math.fsum(memory.allowed for memory in mix.segments) / seen
    return tuple(
        Traffic(
            segment=memory.segment,
            weight=memory.recent / total,
            allowed_share=min(1.0, (memory.allowed + PRIOR * allowed_share) / (memory.seen + PRIOR)),
        )
        for memory in mix.segments
    )


def num_effective(mix: Mix) -> float:
    """Number of requests that the mix is known from, by the formula above."""
    total = math.fsum(memory.recent for memory in mix.segments)
    return total * total / mix.squares if mix.squares > 0.0 else 0.0


def _bounded(memories: list[SegmentMemory]) -> tuple[SegmentMemory, ...]:
    """The most seen, and all others together."""
    alive = [memory for memory in memories if memory.seen >= LEAST_SEEN]
    named = sorted(
        (memory for memory in alive if memory.segment != OTHER_SEGMENT), key=lambda found: (-found.seen, found.segment)
    )
    rest = [*named[MAX_SEGMENTS:], *(memory for memory in alive if memory.segment == OTHER_SEGMENT)]
    kept = named[:MAX_SEGMENTS]
    if rest:
        kept.append(
            SegmentMemory(
                segment=OTHER_SEGMENT,
                recent=min(MAX_QUANTITY, math.fsum(memory.recent for memory in rest)),
                seen=min(MAX_QUANTITY, math.fsum(memory.seen for memory in rest)),
                allowed=min(MAX_QUANTITY, math.fsum(memory.allowed for memory in rest)),
            )
        )
    return tuple(sorted(kept, key=lambda memory: memory.segment))


def _nothing(segment: str) -> SegmentMemory:
    return SegmentMemory(segment=segment, recent=0.0, seen=0.0, allowed=0.0)


def _counted(traffic: SegmentTraffic) -> tuple[int, int]:
    """Requests of a segment in a window, and those allowed."""
    return min(traffic.num_requests, MAX_COUNTED), min(traffic.num_allowed, MAX_COUNTED)
