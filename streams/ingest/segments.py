"""Requests by segment, and what was assigned to them. Pure."""

from collections.abc import Sequence

from schemas.errors import RecordError
from schemas.records import SegmentTraffic
from streams.ingest.bounds import MICRO, OTHER, bounded, largest

MAX_SEGMENTS = 64
# Told apart while a window is open, in the order of the log; the rest are other from the start.
MAX_TRACKED = 1_024


def believe_segments(segments: Sequence[SegmentTraffic], *, field: str) -> None:
    """Raise RecordError unless each segment is listed once and its counts can be true beside each other."""
    if len({traffic.segment for traffic in segments}) != len(segments):
        raise RecordError("invalid_field", "a segment is listed twice", field=field)
    for index, traffic in enumerate(segments):
        place = f"{field}[{index}]"
        if traffic.num_allowed > traffic.num_requests:
            raise RecordError(
                "invalid_field", f"{traffic.num_allowed} allowed of {traffic.num_requests} requests", field=place
            )
        if traffic.num_routed > traffic.num_allowed:
            raise RecordError(
                "invalid_field", f"{traffic.num_routed} routed of {traffic.num_allowed} allowed", field=place
            )
        if traffic.probability_micro > traffic.num_allowed * MICRO:
            raise RecordError(
                "invalid_field",
                f"probabilities of {traffic.num_allowed} requests sum up to {traffic.probability_micro} millionths",
                field=place,
            )


class _Sums:
    """Sums of one segment."""

    __slots__ = ("num_allowed", "num_requests", "num_routed", "probability_micro")

    def __init__(self) -> None:
        self.num_requests = self.num_allowed = self.probability_micro = self.num_routed = 0

    def add(self, other: "SegmentTraffic | _Sums") -> None:
        self.num_requests += other.num_requests
        self.num_allowed += other.num_allowed
        self.probability_micro += other.probability_micro
        self.num_routed += other.num_routed


class SegmentSums:
    """Segments of one window, summed up."""

    def __init__(self) -> None:
        self._segments: dict[str, _Sums] = {}

    def add(self, traffic: SegmentTraffic) -> None:
        """Add what one router says of one segment."""
        is_known = traffic.segment in self._segments or len(self._segments) < MAX_TRACKED
        self._segments.setdefault(traffic.segment if is_known else OTHER, _Sums()).add(traffic)

    def segments(self) -> list[SegmentTraffic]:
        """The MAX_SEGMENTS with the most requests in order of names, the others together as ``(other)``."""
        kept, rest = largest({name: sums.num_requests for name, sums in self._segments.items()}, MAX_SEGMENTS)
        listed = {name: self._segments[name] for name in kept}
        if rest:
            listed[OTHER] = _Sums()
            for name in rest:
                listed[OTHER].add(self._segments[name])
        return [
            SegmentTraffic(
                segment=name,
                num_requests=bounded(sums.num_requests),
                num_allowed=bounded(sums.num_allowed),
                probability_micro=bounded(sums.probability_micro),
                num_routed=bounded(sums.num_routed),
            )
            for name, sums in sorted(listed.items())
        ]
