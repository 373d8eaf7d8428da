"""Names of segments: for whom the incremental effect of a lever is measured."""

# A request whose caller names no segment.
NO_SEGMENT = "(none)"
# Stands for all segments that a list has no room for.
OTHER_SEGMENT = "(other)"


def segment_of(advertiser_segment: str) -> str:
    """Segment of a request: its label, or ``(none)`` where it has none."""
    return advertiser_segment or NO_SEGMENT
