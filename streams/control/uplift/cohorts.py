"""Cohorts of requests: pending until all that can come of them has come, then whole into the running sums. Pure.

A cohort matures at the first tick at which

    its end + attribution window + grace <= end of the tick's window

and the logs of results and outcomes have got that far themselves: a pipeline of outcomes that stands still is not taken
for users who do nothing. A partition that falls behind the others is waited for by one more attribution window, then no
longer: what comes of a matured cohort after that is counted and not summed.

Pending cohorts are bounded. Where they need more room, two neighbours become one, which matures with the later of the
two: an effect then waits longer, but nothing is taken for zero too early.
"""

from typing import Final

import msgspec
import numpy as np

from schemas.buckets import NUM_BUCKETS
from streams.control.uplift import layout
from streams.control.uplift.layout import NUM_COLUMNS, Sums
from streams.control.uplift.state import NONE_YET, MeasurementState, Pending, SegmentSums
from streams.control.uplift.versions import era_at

# Windows of the slowest part are in the log by then.
GRACE_WINDOWS: Final = 3
MAX_PENDING: Final = 256
MAX_PENDING_BYTES: Final = 384 << 10
# Half of what is steered by is of the last so many cohorts.
HALF_LIFE_COHORTS: Final = 240


def with_more(pending: tuple[Pending, ...], sums_BK: Sums, *, cohort: int, is_aa: bool) -> tuple[Pending, ...]:
    """Pending cohorts with more sums of one of them."""
    at = next((at for at, one in enumerate(pending) if one.is_aa == is_aa and one.first <= cohort <= one.last), None)
    if at is not None:
        one = pending[at]
        more = _sparse(layout.added(dense(one), sums_BK), first=one.first, last=one.last, is_aa=is_aa)
        return (*pending[:at], more, *pending[at + 1 :])
    return tuple(
        sorted(
            [*pending, _sparse(sums_BK, first=cohort, last=cohort, is_aa=is_aa)], key=lambda one: (one.last, one.is_aa)
        )
    )


def bounded(pending: tuple[Pending, ...], state: MeasurementState) -> tuple[Pending, ...]:
    """As many cohorts as there is room for: while there are too many, the smallest two neighbours become one."""
    kept = list(pending)
    while len(kept) > MAX_PENDING or sum(one.size_bytes for one in kept) > MAX_PENDING_BYTES:
        pairs = [
            (kept[at].size_bytes + kept[at + 1].size_bytes, at)
            for at in range(len(kept) - 1)
            if kept[at].is_aa == kept[at + 1].is_aa
            and era_at(state.eras, kept[at].last) == era_at(state.eras, kept[at + 1].last)
        ]
        if not pairs:
            break
        _, at = min(pairs)
        one, other = kept[at], kept[at + 1]
        kept[at : at + 2] = [
            _sparse(
                layout.added(dense(one), dense(other)),
                first=min(one.first, other.first),
                last=max(one.last, other.last),
                is_aa=one.is_aa,
            )
        ]
    return tuple(kept)


def closing_ms(state: MeasurementState, now_ms: int) -> int:
    """Time up to which cohorts are closed at a tick whose window ends at ``now_ms``, by the rule above."""
    ends = {
        kind: [end_ms for ref, end_ms in zip(state.applied, state.ends_ms, strict=True) if ref.kind == kind]
        for kind in ("results", "outcomes")
    }
    attribution_ms = state.attribution_ms
    if not ends["results"] or not ends["outcomes"] or attribution_ms <= 0:
        return state.matured_until_ms
    by_clock_ms = now_ms - attribution_ms - GRACE_WINDOWS * state.window_ms
    complete_ms = min(*ends["results"], min(ends["outcomes"]) - attribution_ms)
    most_ms = min(by_clock_ms, max(ends["outcomes"]) - attribution_ms)
    patient_ms = min(most_ms, max(complete_ms, by_clock_ms - attribution_ms))
    return max(state.matured_until_ms, patient_ms)


def matured(state: MeasurementState, now_ms: int, *, window_index: int | None = None) -> MeasurementState:
    """State after a tick whose window ends at ``now_ms``: closed cohorts are in the running sums of their segments."""
    until_ms = closing_ms(state, now_ms)
    index = window_index if window_index is not None else now_ms // max(1, state.window_ms) - 1
    segments = {
        name: _segment(sums, state, until_ms=until_ms, window_index=index) for name, sums in state.segments.items()
    }
    return msgspec.structs.replace(state, matured_until_ms=max(0, until_ms), segments=segments)


def dense(one: Pending) -> Sums:
    """Sums of a pending cohort [B, K]."""
    sums_N = np.zeros(NUM_BUCKETS * NUM_COLUMNS, dtype=np.int64)
    sums_N[np.frombuffer(one.places, dtype="<u2")] = np.frombuffer(one.numbers, dtype="<i8")
    return sums_N.reshape(NUM_BUCKETS, NUM_COLUMNS)


def _sparse(sums_BK: Sums, *, first: int, last: int, is_aa: bool) -> Pending:
    sums_N = sums_BK.reshape(-1)
    places_N = np.flatnonzero(sums_N)
    return Pending(
        first=first,
        last=last,
        is_aa=is_aa,
        places=places_N.astype("<u2").tobytes(),
        numbers=sums_N[places_N].astype("<i8").tobytes(),
    )


def _segment(sums: SegmentSums, state: MeasurementState, *, until_ms: int, window_index: int) -> SegmentSums:
    due = [one for one in sums.pending if (one.last + 1) * state.cohort_ms <= until_ms]
    if not due:
        return sums
    for one in due:
        sums = _taken(sums, one, state)
    return msgspec.structs.replace(sums, pending=sums.pending[len(due) :], matured_window=window_index)


def _taken(sums: SegmentSums, one: Pending, state: MeasurementState) -> SegmentSums:
    """Sums with one matured cohort among them; one of other model versions starts them anew."""
    sums_BK = dense(one)
    if one.is_aa:
        return msgspec.structs.replace(
            sums,
            aa=layout.packed(layout.added(layout.unpacked(sums.aa), sums_BK)),
            is_aa=True,
            aa_since_ms=sums.aa_since_ms if sums.aa else one.first * state.cohort_ms,
            matured_cohort=max(sums.matured_cohort, one.last),
        )
    era = era_at(state.eras, one.last)
    if era != sums.era or not sums.claims:
        sums = msgspec.structs.replace(
            sums,
            claims=b"",
            steering=b"",
            prior=sums.steering or sums.prior,
            era=era,
            since_ms=one.first * state.cohort_ms,
        )
    gap = one.last - sums.matured_cohort if sums.matured_cohort != NONE_YET else 0
    kept = 0.5 ** (max(0, gap) / HALF_LIFE_COHORTS)
    return msgspec.structs.replace(
        sums,
        claims=layout.packed(layout.added(layout.unpacked(sums.claims), sums_BK)),
        steering=layout.packed_faded(kept * layout.unpacked_faded(sums.steering) + sums_BK),
        is_aa=False,
        matured_cohort=max(sums.matured_cohort, one.last),
    )
