"""Whether a window of results or outcomes can be believed: what cannot be added up is refused as a whole. Pure."""

from itertools import pairwise

import msgspec

from schemas.buckets import NUM_BUCKETS
from schemas.errors import RecordError
from schemas.histogram import ExponentialHistogram
from schemas.records import ControlWindow, StratumSums
from schemas.records.measurement import OUTCOME_SUMS, REQUEST_SUMS
from streams.control.uplift.layout import MAX_SUM


def check_measured(window: ControlWindow, *, skew_ms: int) -> None:
    """Raise RecordError with the field that cannot be, where there is one.

    A cohort that begins after the window's end would wait for ever.
    """
    body = window.results or window.outcomes
    assert body is not None
    if body.cohort_ms <= 0:
        raise RecordError("invalid_field", "cohorts of no length", field="cohort_ms")
    if window.outcomes is not None and window.outcomes.attribution_ms <= 0:
        raise RecordError("invalid_field", "an attribution window of no length", field="outcomes.attribution_ms")
    num_columns = len(REQUEST_SUMS if window.results is not None else OUTCOME_SUMS)
    for stratum in body.strata:
        fault = _fault(stratum, num_columns=num_columns)
        if fault is None and stratum.cohort * body.cohort_ms >= window.end_ms + skew_ms:
            fault = f"cohort {stratum.cohort} begins after the window's end"
        if fault is not None:
            raise RecordError("invalid_field", f"segment {stratum.segment}: {fault}", field=f"{window.kind}.strata")
    for guard in window.results.guards if window.results is not None else ():
        try:
            ExponentialHistogram.from_fields(**msgspec.structs.asdict(guard.latency))
        except ValueError as error:
            raise RecordError("invalid_field", str(error), field="results.guards.latency") from error


def _fault(stratum: StratumSums, *, num_columns: int) -> str | None:
    buckets = stratum.buckets
    if any(one >= other for one, other in pairwise(buckets)):
        return "buckets are not in rising order"
    if buckets and buckets[-1] >= NUM_BUCKETS:
        return f"bucket {buckets[-1]} of {NUM_BUCKETS}"
    if len(stratum.sums) != len(buckets) * num_columns:
        return f"{len(stratum.sums)} sums of {len(buckets)} buckets x {num_columns}"
    return "a sum beyond all bounds" if any(abs(number) > 2 * MAX_SUM for number in stratum.sums) else None
