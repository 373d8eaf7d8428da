"""What is said of each segment of which something is newly known: one record, the same whenever it is said. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from schemas.records import ArmGuard, CellLimits, Effect, SegmentUplift
from schemas.records.measurement import ARMS
from streams.control.uplift import layout
from streams.control.uplift.cohorts import matured
from streams.control.uplift.effects import STEERING_CONTRASTS, effects_of
from streams.control.uplift.guard_sums import recent_guards
from streams.control.uplift.guardrails import (
    DEFAULT_GUARDRAILS,
    GuardrailSettings,
    after_judgement,
    levers_at_base,
)
from streams.control.uplift.layout import NUM_COLUMNS, Sums, column
from streams.control.uplift.state import ALL, MeasurementState, SegmentSums
from streams.control.uplift.trust import trust
from streams.control.uplift.versions import era_of

# Where more of the outcomes than that came too late to be counted, requests were taken for worth nothing that were not.
MOST_LATE_SHARE: Final = 0.05
_ARM_REQUESTS: Final = np.array([column(f"arm {arm}", "num_requests") for arm in ARMS])
_ARM_OUTCOMES: Final = np.array(
    [column(f"arm {arm}", name) for arm in ARMS for name in ("views", "clicks", "conversions")]
)


def ticked_measurement(
    state: MeasurementState,
    *,
    window_index: int,
    window_end_ms: int,
    limits: CellLimits | None = None,
    guardrails: GuardrailSettings = DEFAULT_GUARDRAILS,
) -> MeasurementState:
    """State after a tick: ``said`` of each segment of which there is news is what is to be said of this window.

    News is a cohort that matured, and a lever that a guardrail takes back to base or returns; guardrails are judged by
    the cell's ``limits``, where there is a cell to be steered.
    """
    if not state.segments:
        return state
    state = matured(state, window_end_ms, window_index=window_index)
    segments = dict(state.segments)
    if limits is not None:
        for name, sums in state.segments.items():
            after = after_judgement(sums, limits=limits, settings=guardrails)
            if levers_at_base(after) != levers_at_base(sums):
                after = msgspec.structs.replace(after, matured_window=window_index)
            segments[name] = after
    state = msgspec.structs.replace(state, segments=segments)
    for record in uplift_records(state, window_index=window_index, window_end_ms=window_end_ms):
        if segments[record.segment].said is not record:
            segments[record.segment] = msgspec.structs.replace(segments[record.segment], said=record)
    return msgspec.structs.replace(state, segments=segments)


def uplift_records(state: MeasurementState, *, window_index: int, window_end_ms: int) -> tuple[SegmentUplift, ...]:
    """What is said of a tick's window, in order of segments; what was said of it before is said again as it was."""
    whole = recent_guards(state.of(ALL))
    found = []
    for name in sorted(state.segments):
        sums = state.segments[name]
        if sums.matured_window != window_index:
            continue
        if sums.said is not None and sums.said.window_index == window_index:
            found.append(sums.said)
        else:
            found.append(_uplift(sums, state, whole, window=(window_index, window_end_ms)))
    return tuple(found)


def _uplift(
    sums: SegmentSums, state: MeasurementState, whole: Sequence[ArmGuard], *, window: tuple[int, int]
) -> SegmentUplift:
    window_index, window_end_ms = window
    era = era_of(state.eras, sums.era)
    claims_BK = layout.unpacked(sums.aa if sums.is_aa else sums.claims)
    guards = recent_guards(sums)
    claims: Iterable[Effect] = ()
    recent: Iterable[Effect] = ()
    if not is_too_late(sums, claims_BK):
        claims = effects_of(claims_BK, past_BK=layout.unpacked(sums.aa) if sums.aa and not sums.is_aa else None)
        recent = effects_of(layout.unpacked_faded(sums.steering), STEERING_CONTRASTS)
    return SegmentUplift(
        cell=state.cell,
        segment=sums.segment,
        window_index=window_index,
        window_end_ms=window_end_ms,
        baseline_version=era.baseline_version,
        powerful_version=era.powerful_version,
        since_ms=sums.aa_since_ms if sums.is_aa else sums.since_ms,
        effects=list(claims),
        recent=list(recent),
        sample_ratio=trust(sums),
        guardrails=list(sums.guardrails),
        num_requests=_num_requests(claims_BK),
        pending_requests=pending_requests(sums),
        num_late_outcomes=sums.num_late_outcomes,
        request_share=_share(guards, whole, "num_requests"),
        optional_share=_share(guards, whole, "num_items_admitted"),
        is_aa=sums.is_aa,
    )


def is_too_late(sums: SegmentSums, claims_BK: Sums) -> bool:
    """Whether so many outcomes came after their cohort had been counted that nothing is to be claimed."""
    num_counted = int(claims_BK[:, _ARM_OUTCOMES].sum())
    return sums.num_late_outcomes > MOST_LATE_SHARE * (sums.num_late_outcomes + num_counted)


def pending_requests(sums: SegmentSums) -> int:
    """Requests whose attribution window is open."""
    total = 0
    for one in sums.pending:
        columns_N = np.frombuffer(one.places, dtype="<u2") % NUM_COLUMNS
        total += int(np.frombuffer(one.numbers, dtype="<i8")[np.isin(columns_N, _ARM_REQUESTS)].sum())
    return total


def _num_requests(claims_BK: Sums) -> int:
    return int(claims_BK[:, _ARM_REQUESTS].sum())


def _share(guards: Sequence[ArmGuard], whole: Sequence[ArmGuard], count: str) -> float:
    """The segment's share of a count of the cell, 0 where the cell has none."""
    in_all = sum(getattr(guard, count) for guard in whole)
    return min(1.0, sum(getattr(guard, count) for guard in guards) / in_all) if in_all else 0.0
