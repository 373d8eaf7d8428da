"""What more of a lever earns: value curves with errors, for the allocator and for routers. Pure.

**Extras.** Requests drew none, half or all of the extras asked for. With h and f the extras per request that were
ranked of a half and of all, and v_h, v_f what these requests earned beyond those that drew none, both with their
errors, the curve goes from 0 through h and f. It is made concave and never falling: slopes v_h / h and (v_f - v_h) /
(f - h) that do not fall are pooled, and those below zero are zero (isotonic regression of the slopes by
pool-adjacent-violators: Barlow, Bartholomew, Bremner and Brunk, "Statistical inference under order restrictions",
1972), pooled by precision. Beyond f nothing was measured. The curve goes on there in the shape of the prior that
routers have for a candidate's chance by its position, m(i) = 1 / (1 + i / d), so that V(n) = V(f) ln(1 + n / d) /
ln(1 + f / d), and never steeper than it was before; its error grows alike. Without it a lever whose capacity was once
short could never show what more would earn.

All segments have the same target of candidates. So the allocator gets one curve of extras, that of the cell.

**Upgrades.** Every further one in a segment earns what the last did, up to all of its requests. So the curve of a
segment is a line, and ``coverage.shares`` fills the segments in the order in which the allocator merges their lines.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from schemas.records import CellLimits, CurvePoint, DepthValue, LeverTerms, ValueCurve
from schemas.records.fields import Lever
from schemas.records.measurement import ARMS, ArmName
from schemas.records.uplift import Contrast, Measure
from streams.control.allocator.curves import merged, value_of
from streams.control.allocator.problem import MAX_QUANTITY
from streams.control.uplift import layout
from streams.control.uplift.effects import Groups
from streams.control.uplift.layout import Faded, column
from streams.control.uplift.state import ALL, MeasurementState, SegmentSums
from streams.control.uplift.statistics.contrasts import mean_difference
from streams.control.uplift.statistics.shrinkage import Estimate

# The depth of the routers' prior.
PRIOR_DEPTH: Final = 128.0
# What is measured stands in for a prior once its error is at most this share of what either of them says. So a lever
# that had too little to be measured by falls back to its prior, and is tried again.
TOLD_SHARE: Final = 0.5
_DEPTHS: Final[tuple[tuple[Contrast, str], ...]] = (("depth_half", "depth half"), ("depth", "depth full"))
_RMA_ARMS: Final[tuple[ArmName, ...]] = ("rma", "both")
_SBM_ARMS: Final[tuple[ArmName, ...]] = ("sbm", "both")
_MS_PER_S: Final = 1_000


class _Point(NamedTuple):
    """What so many extras per request earn per request, with its error."""

    extras: float
    gain: float
    error: float


def lever_curves(
    state: MeasurementState, gains: Mapping[str, Estimate], *, limits: CellLimits
) -> dict[Lever, tuple[ValueCurve, ...]]:
    """Measured curves by lever, of those levers of which enough is known; for the others the cell's terms stand."""
    found: dict[Lever, tuple[ValueCurve, ...]] = {}
    extras = extras_curve(state.of(ALL), state, most_extras=limits.max_candidates - limits.base_candidates)
    upgrades = [
        curve
        for name, gain in gains.items()
        if (curve := upgrade_curve(state.of(name), state, gain, units_per_upgrade=limits.units_per_upgrade)) is not None
    ]
    known: dict[Lever, list[ValueCurve]] = {"rma": [extras] if extras is not None else [], "sbm": upgrades}
    for terms in limits.levers:
        curves = tuple(known.get(terms.lever, ()))
        if curves and _tells_enough(curves, terms):
            found[terms.lever] = curves
    return found


def extras_curve(sums: SegmentSums, state: MeasurementState, *, most_extras: int) -> ValueCurve | None:
    """Value per second of extras in a segment, or in ``(all)``; None where too little was drawn."""
    sums_BK = layout.unpacked_faded(sums.steering)
    points = _fitted(_depths(sums_BK, "value"))
    rate_s = requests_per_s(sums, state) * _share_of(sums_BK, _RMA_ARMS)
    if not points or rate_s <= 0.0:
        return None
    points = [*points, *_beyond(points, most_extras=most_extras)]
    return ValueCurve(segment=sums.segment, points=[_point(rate_s, *point) for point in points])


def upgrade_curve(
    sums: SegmentSums, state: MeasurementState, gain: Estimate, *, units_per_upgrade: float
) -> ValueCurve | None:
    """Value per second of upgrades in a segment; None where nobody asks or nothing says what one costs."""
    share = _share_of(layout.unpacked_faded(sums.steering), _SBM_ARMS)
    rate_s = requests_per_s(sums, state) * share
    if rate_s <= 0.0 or units_per_upgrade <= 0.0:
        return None
    return ValueCurve(
        segment=sums.segment, points=[_point(rate_s, units_per_upgrade, gain.effect, gain.standard_error)]
    )


def depth_values(state: MeasurementState, *, base_candidates: int) -> tuple[DepthValue, ...]:
    """Clicks that a candidate adds by its retrieval position, never rising; none until enough is known."""
    points = _depths(layout.unpacked_faded(state.of(ALL).steering), "clicks")
    if not points or points[-1].error > TOLD_SHARE * abs(points[-1].gain):
        return ()
    before = _Point(0.0, 0.0, 0.0)
    told: dict[int, float] = {}
    for point in _fitted(points):
        # The mean over a stretch of positions stands at its middle.
        position = base_candidates + round(0.5 * (before.extras + point.extras))
        slope = (point.gain - before.gain) / (point.extras - before.extras)
        told[position] = min(1.0, max(0.0, slope), *told.values())
        before = point
    return tuple(DepthValue(position=position, clicks=clicks) for position, clicks in told.items())


def requests_per_s(sums: SegmentSums, state: MeasurementState) -> float:
    """Requests per second of the last whole cohorts of a segment; 0 where there is none."""
    cohorts = [each.cohort for each in sums.guards]
    if len(cohorts) < 2 or state.cohort_ms <= 0:
        return 0.0
    num_requests = sum(arm.num_requests for each in sums.guards[:-1] for arm in each.arms)
    return num_requests * _MS_PER_S / ((cohorts[-1] - cohorts[0]) * state.cohort_ms)


def _depths(sums_BK: Faded, measure: Measure) -> list[_Point]:
    """What was measured at a half and at all of the extras, of those that were ranked."""
    groups = Groups(sums_BK)
    points: list[_Point] = []
    for contrast, name in _DEPTHS:
        found = mean_difference(*groups.sides(contrast, measure))
        num_requests = sums_BK[:, column(name, "num_requests")].sum()
        extras = float(sums_BK[:, column(name, "num_extras_ranked")].sum() / num_requests) if num_requests else 0.0
        # Where more was dropped of all extras than of a half, these tell of no more work.
        if found is not None and found.standard_error > 0.0 and extras > (points[-1].extras if points else 0.0):
            points.append(_Point(extras, found.effect, found.standard_error))
    return points


def _fitted(points: Sequence[_Point]) -> list[_Point]:
    """The concave curve through nothing that never falls, of at most two points, by the formulas above.

    Both are measured against the same requests, so that their errors are not independent: those of a mean of the two
    add up as they do at worst.
    """
    if len(points) < 2:
        return [point._replace(gain=max(0.0, point.gain)) for point in points]
    half, full = points
    slope, next_slope = half.gain / half.extras, (full.gain - half.gain) / (full.extras - half.extras)
    if 0.0 <= next_slope <= slope:
        return [half, full]
    # One straight line where the second slope is the steeper, one level where it falls.
    shapes = [point.extras if next_slope > slope else 1.0 for point in points]
    weight = math.fsum((shape / point.error) ** 2 for shape, point in zip(shapes, points, strict=True))
    level = math.fsum(shape * point.gain / point.error**2 for shape, point in zip(shapes, points, strict=True)) / weight
    error = math.fsum(shape / point.error for shape, point in zip(shapes, points, strict=True)) / weight
    return [
        _Point(point.extras, shape * max(0.0, level), shape * error)
        for shape, point in zip(shapes, points, strict=True)
    ]


def _beyond(points: Sequence[_Point], *, most_extras: int) -> list[_Point]:
    """The point at ``most_extras``, where that is more than was measured."""
    last = points[-1]
    before = points[-2] if len(points) > 1 else _Point(0.0, 0.0, 0.0)
    if most_extras <= last.extras:
        return []
    grown = math.log1p(most_extras / PRIOR_DEPTH) / math.log1p(last.extras / PRIOR_DEPTH)
    slope = (last.gain - before.gain) / (last.extras - before.extras)
    gain = min(last.gain * grown, last.gain + slope * (most_extras - last.extras))
    return [_Point(float(most_extras), gain, last.error * (gain / last.gain if gain > 0.0 else 1.0))]


def _tells_enough(curves: Sequence[ValueCurve], terms: LeverTerms) -> bool:
    """Whether the error of all curves together is small beside what they say, or beside what the terms say."""
    tops = [curve.points[-1] for curve in curves]
    work_units_s = math.fsum(top.work_units_s for top in tops)
    pieces = merged(terms.curves, confidence=0.0, max_work_units_s=work_units_s)
    said = max(math.fsum(top.value_s for top in tops), value_of(pieces, work_units_s))
    return math.sqrt(math.fsum(top.error_s**2 for top in tops)) <= TOLD_SHARE * said


def _share_of(sums_BK: Faded, arms: Sequence[ArmName]) -> float:
    """Share of the requests that belong to some arms."""
    counts = {arm: float(sums_BK[:, column(f"arm {arm}", "num_requests")].sum()) for arm in ARMS}
    total = math.fsum(counts.values())
    return math.fsum(counts[arm] for arm in arms) / total if total > 0.0 else 0.0


def _point(rate_s: float, units: float, gain: float, error: float) -> CurvePoint:
    """A point per request as one per second, within what a record may hold."""
    work, value, value_error = (min(MAX_QUANTITY, max(0.0, rate_s * figure)) for figure in (units, gain, error))
    return CurvePoint(work_units_s=work, value_s=value, error_s=value_error)
