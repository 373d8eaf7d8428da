"""Requests of one interval by segment, and what was assigned to them. Pure."""

from schemas.records import SegmentTraffic
from schemas.segments import MAX_SEGMENTS, OTHER_SEGMENT

MICRO = 1_000_000


class _Sums:
    """Sums of one segment."""

    __slots__ = ("num_allowed", "num_requests", "num_routed", "probability_micro")

    def __init__(self) -> None:
        self.num_requests = self.num_allowed = self.probability_micro = self.num_routed = 0


class SegmentCounts:
    """Counts of one interval by segment."""

    def __init__(self) -> None:
        self._segments: dict[str, _Sums] = {}

    def count(self, segment: str, *, is_allowed: bool, probability: float, is_routed: bool) -> None:
        """Note one request; raises ValueError where more is assigned than its arm allows, or by no probability."""
        if not (0.0 <= probability <= 1.0 and (is_allowed or (probability == 0.0 and not is_routed))):
            raise ValueError(f"allowed {is_allowed}, probability {probability}, routed {is_routed}")
        # Callers may name segments: those beyond the first so many of an interval stand together.
        has_room = segment in self._segments or len(self._segments) < MAX_SEGMENTS
        sums = self._segments.setdefault(segment if has_room else OTHER_SEGMENT, _Sums())
        sums.num_requests += 1
        sums.num_allowed += is_allowed
        sums.probability_micro += round(probability * MICRO)
        sums.num_routed += is_routed

    def traffic(self) -> list[SegmentTraffic]:
        """The counts in order of segments."""
        return [
            SegmentTraffic(
                segment=segment,
                num_requests=sums.num_requests,
                num_allowed=sums.num_allowed,
                probability_micro=sums.probability_micro,
                num_routed=sums.num_routed,
            )
            for segment, sums in sorted(self._segments.items())
        ]
