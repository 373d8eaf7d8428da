"""Measured incremental effect of a lever on a segment."""

from msgspec import Struct

from schemas.records.fields import CellName, Count, Finite, Label, Lever, Name, Quantity, TimeMs, WindowIndex


class SegmentUplift(Struct, frozen=True, kw_only=True):
    """Effect per request of one lever in one segment with its always-valid interval, for one model version."""

    cell: CellName
    segment: Name
    lever: Lever
    model_version: Label
    metric: Name
    window_index: WindowIndex
    window_end_ms: TimeMs
    effect: Finite | None
    lower: Finite | None
    upper: Finite | None
    effective_sample_size: Quantity
    num_requests: Count
