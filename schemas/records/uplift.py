"""Measured incremental effects in a segment: what was measured, how surely, and whether the split can be trusted."""

from typing import Literal

from msgspec import Struct

from schemas.records.fields import CellName, Count, Finite, Label, Lever, Name, Quantity, Share, TimeMs, WindowIndex
from schemas.records.measurement import ArmName

# ``rma`` and ``sbm``: the lever's arms against those without it; ``rma_alone``, ``sbm_alone`` and ``both`` against
# ``none``; ``interaction``: what both earn beyond the sum of each alone. ``upgrade`` and ``depth``: what was drawn
# request by request within the arms that allow it (yes against no, full against none), weighted by propensity.
Contrast = Literal["rma", "sbm", "rma_alone", "sbm_alone", "both", "interaction", "upgrade", "depth_half", "depth"]
Measure = Literal["views", "clicks", "conversions", "value", "winsorised_value"]


class Effect(Struct, frozen=True, kw_only=True):
    """One contrast of one measure, per request: the difference of means, treated less control.

    ``lower`` and ``upper`` bound it with 95 % at every look; ``fixed_lower`` and ``fixed_upper`` are those of a single
    look. Values are in units of currency. ``delivered`` is the effect per request that was really served so (with its
    always-valid interval), null where nothing tells. Null bounds: too little is known.
    """

    contrast: Contrast
    measure: Measure
    num_treated: Count
    num_control: Count
    mean_control: Finite | None
    effect: Finite | None
    lower: Finite | None
    upper: Finite | None
    fixed_lower: Finite | None
    fixed_upper: Finite | None
    effective_sample_size: Quantity
    delivered: Finite | None = None
    delivered_lower: Finite | None = None
    delivered_upper: Finite | None = None


class SampleRatio(Struct, frozen=True, kw_only=True):
    """Whether arms have the shares that they were drawn with; ``p_value`` is valid at every look.

    ``expected`` and ``observed`` are shares by arm, in the order of ``arms``.
    """

    arms: list[ArmName]
    expected: list[Share]
    observed: list[Share]
    p_value: Share
    is_mismatch: bool


class Guardrail(Struct, frozen=True, kw_only=True):
    """One guardrail of the segment: its figure against its limit, and the lever that it takes back to base."""

    name: Name
    lever: Lever
    figure: Finite
    limit: Finite
    is_crossed: bool
    detail: Label = ""


class SegmentUplift(Struct, frozen=True, kw_only=True):
    """What is known of a segment after a window, of the model versions in force; segment ``(all)`` is the whole cell.

    ``effects`` are of all cohorts since those versions began, none decayed; ``recent`` are decayed and steer.
    ``pending_requests`` belong to cohorts whose attribution window is open: they count nowhere yet.
    ``optional_share`` is the segment's share of the cell's admitted optional work, ``request_share`` of its requests.
    """

    cell: CellName
    segment: Name
    window_index: WindowIndex
    window_end_ms: TimeMs
    baseline_version: Label
    powerful_version: Label
    since_ms: TimeMs
    effects: list[Effect]
    recent: list[Effect]
    sample_ratio: SampleRatio | None
    guardrails: list[Guardrail]
    num_requests: Count
    pending_requests: Count
    num_late_outcomes: Count
    request_share: Share
    optional_share: Share
    is_aa: bool = False
