"""A measurement window taken into what is measured of its cell. Pure.

Every stratum counts in its segment and in ``(all)``. A window that was taken in before changes nothing, segment by
segment (``state``).
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from schemas.buckets import NUM_BUCKETS
from schemas.records import ControlWindow, ResultsWindow, StratumSums, WindowRef
from schemas.records.measurement import ARMS, OUTCOME_SUMS, REQUEST_SUMS
from schemas.segments import MAX_SEGMENTS, OTHER_SEGMENT
from streams.control.uplift import layout
from streams.control.uplift.cohorts import bounded, with_more
from streams.control.uplift.guard_sums import with_guards
from streams.control.uplift.state import ALL, MeasurementState, SegmentSums, is_applied, rescaled, with_applied
from streams.control.uplift.versions import counted

DAY_MS: Final = 86_400_000
# More are not told in one target; ticks come with every window, so this is a backlog.
MAX_TAKEN: Final = 512


def ref_of(window: ControlWindow) -> WindowRef:
    """How a target's manifest names the window."""
    return WindowRef(kind=window.kind, source_partition=window.source_partition, window_index=window.window_index)


def names_in(window: ControlWindow) -> frozenset[str]:
    """The segments that a window tells of, ``(all)`` among them."""
    strata = _strata(window)
    guards = window.results.guards if window.results is not None else []
    return frozenset((ALL, *(each.segment for each in strata), *(each.segment for each in guards)))


def take_in(state: MeasurementState, window: ControlWindow) -> MeasurementState:
    """State after a window of results or outcomes; the same state where nothing of it is new."""
    ref = ref_of(window)
    window_ms = window.end_ms - window.start_ms
    if is_applied(rescaled(state.applied, window_ms=window_ms, from_ms=state.window_ms), ref):
        return state
    state = _head(state, window, ref)
    segments = dict(state.segments)
    for name in sorted({_told(state, name) for name in names_in(window)}):
        sums = segments.get(name) or SegmentSums(segment=name)
        known = rescaled(sums.applied, window_ms=window_ms, from_ms=sums.window_ms)
        if not is_applied(known, ref):
            more = _segment(sums, window, state, name)
            segments[name] = msgspec.structs.replace(more, window_ms=window_ms, applied=with_applied(known, ref))
    return msgspec.structs.replace(state, segments=segments)


def _head(state: MeasurementState, window: ControlWindow, ref: WindowRef) -> MeasurementState:
    body = window.results or window.outcomes
    assert body is not None
    new = sorted(names_in(window) - set(state.names) - {ALL})
    room = max(0, MAX_SEGMENTS + 1 - len(state.names))
    window_ms = window.end_ms - window.start_ms
    applied = with_applied(rescaled(state.applied, window_ms=window_ms, from_ms=state.window_ms), ref)
    ends = {(each.kind, each.source_partition): end for each, end in zip(state.applied, state.ends_ms, strict=True)}
    ends[ref.kind, ref.source_partition] = window.end_ms
    state = msgspec.structs.replace(
        state,
        cell=window.cell,
        cohort_ms=body.cohort_ms,
        window_ms=window_ms,
        attribution_ms=window.outcomes.attribution_ms if window.outcomes is not None else state.attribution_ms,
        applied=applied,
        ends_ms=tuple(ends[each.kind, each.source_partition] for each in applied),
        names=tuple(sorted({*state.names, *_within(new, room)})),
        taken=(*state.taken, ref)[-MAX_TAKEN:],
    )
    if window.results is None:
        return state
    return counted(state, window.results.versions, cohort=window.start_ms // body.cohort_ms)


def _within(new: Sequence[str], room: int) -> list[str]:
    """The new segments that there is room for; ``(other)`` stands for the rest."""
    if len(new) < room or (len(new) == room and OTHER_SEGMENT in new):
        return list(new)
    return [*new[: max(0, room - 1)], OTHER_SEGMENT]


def _told(state: MeasurementState, segment: str) -> str:
    return segment if segment == ALL or segment in state.names else OTHER_SEGMENT


def _segment(sums: SegmentSums, window: ControlWindow, state: MeasurementState, name: str) -> SegmentSums:
    strata = [each for each in _strata(window) if name in (ALL, _told(state, each.segment))]
    is_request = window.results is not None
    pending = sums.pending
    num_late = 0
    for cohort, is_aa in sorted({(each.cohort, each.is_aa) for each in strata}):
        own = [each for each in strata if (each.cohort, each.is_aa) == (cohort, is_aa)]
        if (cohort + 1) * state.cohort_ms <= state.matured_until_ms:
            num_late += _num_in(own, is_request=is_request)
            continue
        pending = with_more(pending, layout.folded(own, is_request=is_request), cohort=cohort, is_aa=is_aa)
    sums = msgspec.structs.replace(
        sums,
        pending=bounded(pending, state),
        num_late_requests=sums.num_late_requests + (num_late if is_request else 0),
        num_late_outcomes=sums.num_late_outcomes + (0 if is_request else num_late),
    )
    if window.results is None:
        return sums
    sums = _counted_today(sums, strata, day=window.start_ms // DAY_MS)
    guards = [each for each in window.results.guards if name in (ALL, _told(state, each.segment))]
    return with_guards(sums, guards, cohort=window.start_ms // state.cohort_ms)


def _num_in(strata: Iterable[StratumSums], *, is_request: bool) -> int:
    """Requests, or outcomes of all kinds, in strata."""
    columns, first, last = (len(REQUEST_SUMS), 0, 1) if is_request else (len(OUTCOME_SUMS), 0, 3)
    return sum(
        sum(stratum.sums[at + first : at + last]) for stratum in strata for at in range(0, len(stratum.sums), columns)
    )


def _counted_today(sums: SegmentSums, strata: Iterable[StratumSums], *, day: int) -> SegmentSums:
    """Requests of the day by bucket and arm; what belongs to a day before is in the claims alone."""
    if day < sums.day:
        return sums
    shape = (NUM_BUCKETS, len(ARMS), 2)
    counts_BA2 = np.zeros(shape, dtype=np.int64)
    if day == sums.day and sums.day_sums:
        counts_BA2 += np.frombuffer(sums.day_sums, dtype="<i8").reshape(shape)
    for stratum in strata:
        said_NM = np.array(stratum.sums, dtype=np.int64).reshape(-1, len(REQUEST_SUMS))
        counts_BA2[np.array(stratum.buckets, dtype=np.int64), ARMS.index(stratum.arm)] += said_NM[:, :2]
    counts_BA2 = np.clip(counts_BA2, 0, layout.MAX_SUM)
    return msgspec.structs.replace(sums, day=day, day_sums=counts_BA2.astype("<i8").tobytes())


def _strata(window: ControlWindow) -> Sequence[StratumSums]:
    body: ResultsWindow | None = window.results
    if body is not None:
        return body.strata
    assert window.outcomes is not None
    return window.outcomes.strata
