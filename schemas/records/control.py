"""What controllers say: targets, pools, and snapshots of their own state."""

from msgspec import Struct

from schemas.records.fields import (
    Body,
    CellName,
    Count,
    Finite,
    Label,
    Name,
    Partition,
    Quantity,
    Share,
    Text,
    TimeMs,
    WindowIndex,
)
from schemas.records.windows import LabelledUnits


class WindowRef(Struct, frozen=True, kw_only=True):
    """One window that a target was made from."""

    kind: Name
    source_partition: Partition
    window_index: WindowIndex


class SegmentShare(Struct, frozen=True, kw_only=True):
    """Share of a segment's requests that may use the powerful model."""

    segment: Name
    share: Share


class CandidateTarget(Struct, frozen=True, kw_only=True):
    """What a cell's controller asks for after one tick.

    ``candidate_target`` counts candidates per request, base included, in [base, max]. ``extra_budget_units_s`` is
    what the wide pool can pay for, in candidates per second. Whoever reads it after ``valid_until_ms`` does base work
    only. ``reason`` is one word for what bound the target, ``detail`` the sentence. ``manifest`` names each window
    that it was made from.
    """

    cell: CellName
    window_index: WindowIndex
    window_end_ms: TimeMs
    valid_until_ms: TimeMs
    base_candidates: Count
    max_candidates: Count
    candidate_target: Count
    extra_budget_units_s: Quantity
    coverage: Share
    segment_shares: list[SegmentShare]
    reason: Name
    detail: Text
    manifest: list[WindowRef]
    latency_limit_ms: Quantity
    latency_p99_ms: Finite | None
    request_rate_per_s: Quantity
    controller_version: Label


class PoolSnapshot(Struct, frozen=True, kw_only=True):
    """One pool of a cell at a window's end; quantities times 10^6. Unknown figures are null, never zero.

    ``units_micro``, ``cpu_cores_micro`` and ``memory_bytes`` include what is unusable: usable units are
    ``units_micro`` less the sum of ``unusable``.
    """

    cell: CellName
    accelerator: Name
    window_index: WindowIndex
    window_end_ms: TimeMs
    valid_until_ms: TimeMs
    num_hosts: Count
    units_micro: Count
    cpu_cores_micro: Count
    memory_bytes: Count
    unusable: list[LabelledUnits]
    causes: list[LabelledUnits]
    providers: list[LabelledUnits]
    noticed_units_micro: Count
    num_offers: Count
    num_reclaims: Count
    expected_survival_s: Quantity | None = None
    bottleneck: Label = ""


class ControllerSnapshot(Struct, frozen=True, kw_only=True):
    """State of a cell's controller after a tick, from which a replay can start."""

    cell: CellName
    window_index: WindowIndex
    controller_version: Label
    state: Body
