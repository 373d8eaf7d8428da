"""What controllers say: targets, pools, and snapshots of their own state."""

from msgspec import Struct

from schemas.records.fields import (
    Body,
    CellName,
    Count,
    Finite,
    Label,
    Lever,
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


class DepthValue(Struct, frozen=True, kw_only=True):
    """Chance that the candidate at a retrieval position ends among the results and is clicked."""

    position: Count
    clicks: Share


class UpgradeValue(Struct, frozen=True, kw_only=True):
    """What one request of a segment is expected to gain by the powerful model, in micro-units of currency."""

    segment: Name
    value_micro: Count


class CandidateTarget(Struct, frozen=True, kw_only=True):
    """What a cell's controller asks for after one tick.

    ``candidate_target`` counts candidates per request, base included, in [base, max]. ``extra_budget_units_s`` is
    what the wide pool can pay for, in candidates per second. Whoever reads it after ``valid_until_ms`` does base work
    only. ``reason`` is one word for what bound the target, ``detail`` the sentence; ``coverage_reason`` and
    ``coverage_detail`` say the same of the coverage. ``segment_shares`` are the probabilities with which a request of
    a segment goes to the powerful model where its arm allows it, ``other_share`` that of every segment not listed.
    ``powerful_budget_units_s`` is what the powerful pool can pay for. ``excluded`` names reporters that were not
    counted. ``manifest`` names each window that it was made from.

    What was measured of the values by which optional work is weighed, empty before anything was: ``depth_values`` is a
    curve through points in rising order of position that never rises, ``upgrade_values`` holds the expected gain by
    segment. Whoever weighs has priors for what is not there.

    Requests of ``segments_at_base`` get no extra candidates, as a guardrail of their segment is crossed.
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
    other_share: Share = 0.0
    powerful_budget_units_s: Quantity = 0.0
    coverage_reason: Label = ""
    coverage_detail: Text = ""
    powerful_p99_ms: Finite | None = None
    upstream_p99_ms: Finite | None = None
    excluded: list[Name] = []
    depth_values: list[DepthValue] = []
    upgrade_values: list[UpgradeValue] = []
    segments_at_base: list[Name] = []

    def __post_init__(self) -> None:
        positions = [point.position for point in self.depth_values]
        if positions != sorted(set(positions)):
            raise ValueError("depth_values must be in rising order of position")
        clicks = [point.clicks for point in self.depth_values]
        if clicks != sorted(clicks, reverse=True):
            raise ValueError("depth_values must never rise with the position")


class LeverUnits(Struct, frozen=True, kw_only=True):
    """What one lever has of a pool, and what keeps it from more.

    ``bottleneck`` is one of ``accelerator``, ``cpu``, ``memory``, ``compatibility``, ``survival``, ``upstream``,
    ``network``, ``dependent``, ``cap``, ``value`` (more would earn nothing), or empty. ``survives_share`` is the share
    of the pool's units that is expected to outlive the lever's start.
    """

    lever: Lever
    units_micro: Count
    bottleneck: Label = ""
    survives_share: Share | None = None


class ResourcePrice(Struct, frozen=True, kw_only=True):
    """Shadow price: value per second that one more unit of a resource of the pool would earn.

    A unit is one accelerator unit, one core, or one GiB.
    """

    resource: Name
    value_s: Quantity


class PoolSnapshot(Struct, frozen=True, kw_only=True):
    """One pool of a cell at a window's end; quantities times 10^6. Unknown figures are null, never zero.

    ``units_micro``, ``cpu_cores_micro`` and ``memory_bytes`` include what is unusable: usable units are
    ``units_micro`` less the sum of ``unusable``. ``mean_age_s`` and ``expected_survival_s`` (what is left to an offer
    of today) are of usable units, ``churn_per_unit_h`` counts units taken back per unit-hour. ``levers`` is the split
    in force, made as ``allocation`` says: ``program``, ``kept``, ``rule``.
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
    num_hosts_silent: Count = 0
    silent_units_micro: Count = 0
    mean_age_s: Quantity | None = None
    churn_per_unit_h: Quantity | None = None
    levers: list[LeverUnits] = []
    prices: list[ResourcePrice] = []
    allocation: Label = ""
    allocation_detail: Text = ""


class ControllerSnapshot(Struct, frozen=True, kw_only=True):
    """State of a cell's controller after a tick, from which a replay can start.

    What is measured of a segment is a record of its own, named by ``segment``, before the cell's, of the same window.
    """

    cell: CellName
    window_index: WindowIndex
    controller_version: Label
    state: Body
    segment: Label = ""
