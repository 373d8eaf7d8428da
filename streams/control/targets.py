"""The record of a tick's decision: every figure with its reason and the windows that it was made from."""

from dataclasses import dataclass

from schemas.records import CandidateTarget, WindowRef
from streams.control.coverage.decide_coverage import CoverageDecision
from streams.control.coverage.inputs import CoverageInputs
from streams.control.decide import Decision, Inputs
from streams.control.evidence import Evidence
from streams.control.facts import CapacityFacts, LatencyFacts
from streams.control.settings import CONTROLLER_VERSION, ControlSettings
from streams.control.uplift.state import ALL
from streams.control.uplift.summary import Measured

MAX_DETAIL = 4096


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a target says: both decisions, the windows that they were made from, and what else is to be told."""

    capacity: CapacityFacts
    latency: LatencyFacts
    inputs: Inputs
    decision: Decision
    coverage_inputs: CoverageInputs
    coverage: CoverageDecision
    seen: Evidence
    seen_powerful: Evidence
    notes: tuple[str, ...]
    measured: Measured


def target_of(made: Made, *, cell: str, window_ms: int, settings: ControlSettings) -> CandidateTarget:
    """Target of one tick of a cell whose windows are ``window_ms`` long."""
    capacity, decision = made.capacity, made.decision
    limits = capacity.limits
    return CandidateTarget(
        cell=cell,
        window_index=capacity.window_index,
        window_end_ms=capacity.end_ms,
        valid_until_ms=capacity.end_ms + settings.validity_windows * window_ms,
        base_candidates=limits.base_candidates,
        max_candidates=limits.max_candidates,
        candidate_target=limits.base_candidates + decision.extras,
        extra_budget_units_s=decision.budget_units_s,
        coverage=made.coverage.coverage,
        segment_shares=list(made.coverage.segment_shares),
        reason=decision.reason,
        detail="; ".join([decision.detail, *made.notes])[:MAX_DETAIL],
        manifest=[*_manifest(capacity, made.latency, (made.seen, made.seen_powerful)), *made.measured.taken],
        latency_limit_ms=limits.latency_limit_ms,
        latency_p99_ms=made.inputs.p99_ms,
        request_rate_per_s=made.inputs.planned_rate_per_s,
        controller_version=CONTROLLER_VERSION,
        other_share=made.coverage.other_share,
        powerful_budget_units_s=made.coverage.budget_units_s,
        coverage_reason=made.coverage.reason,
        coverage_detail=made.coverage.detail[:MAX_DETAIL],
        powerful_p99_ms=made.coverage_inputs.powerful_p99_ms,
        upstream_p99_ms=made.inputs.upstream_p99_ms,
        excluded=list(made.latency.excluded),
        depth_values=list(made.measured.depth_values),
        upgrade_values=list(made.measured.upgrade_values),
        segments_at_base=sorted(made.measured.segments_at_base("rma") - {ALL}),
    )


def _manifest(capacity: CapacityFacts, latency: LatencyFacts, seen: tuple[Evidence, ...]) -> list[WindowRef]:
    """The capacity window, the latency windows whose merged figures were read, and that of the tick in any case."""
    own = WindowRef(kind="latency", source_partition=latency.source_partition, window_index=latency.window_index)
    earlier = {
        window.window_index: window
        for evidence in seen
        for window in evidence.windows
        if window.window_index != latency.window_index
    }
    return [
        WindowRef(kind="capacity", source_partition=capacity.source_partition, window_index=capacity.window_index),
        *(earlier[index] for index in sorted(earlier)),
        own,
    ]
