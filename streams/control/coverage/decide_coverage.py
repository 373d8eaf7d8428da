"""One tick's coverage: which share of the requests the stronger model serves, and of which segments. Pure, total, and
deaf to NaN.

The order is by whose word counts more, as for the candidate target (``streams.control.decide``):

1. what makes upgrades impossible, blind or harmful puts them at zero at once: ``absurd``, ``no_capacity``, ``blind``,
   ``guardrail``;
2. an operator's freeze or override, up to the most that the limits allow: ``operator``;
3. what the powerful pool pays for, and whom the arms allow: ``capacity``, ``arms``;
4. the loop on the powerful route's own tail and sheds (``streams.control.pid``): ``latency``, ``shedding``,
   ``rising``, ``steady``; while nothing is known of the route, a small share of requests tries it: ``probing``.

Every comparison is written so that NaN falls on the side of no upgrade.
"""

import dataclasses
from dataclasses import dataclass

import msgspec

from schemas.records import SegmentShare
from schemas.segments import OTHER_SEGMENT
from streams.control.coverage import calibration, mix
from streams.control.coverage.calibration import Asked
from streams.control.coverage.ceiling import ceiling_of
from streams.control.coverage.inputs import CoverageInputs, CoverageReason
from streams.control.coverage.loop import CoverageLoop
from streams.control.coverage.mix import Traffic
from streams.control.coverage.shares import DECIMALS, reach, shares_for
from streams.control.coverage.steer import Steered, rules_of, steered
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.hold import Hold
from streams.control.uplift.state import ALL

MAX_QUANTITY = 1e12
MAX_COUNT = 2**62


@dataclass(frozen=True, kw_only=True)
class CoverageDecision:
    """Coverage and the shares that lead to it, the budget behind it in work units/s, why, and the loop thereafter.

    ``reason`` is empty where SBM is off.
    """

    coverage: float
    segment_shares: tuple[SegmentShare, ...]
    other_share: float
    budget_units_s: float
    reason: CoverageReason
    detail: str
    loop: CoverageLoop


def decide_coverage(inputs: CoverageInputs, *, loop: CoverageLoop, gains: Gains = DEFAULT_GAINS) -> CoverageDecision:
    """Decision of one tick of ``loop``; coverage in [0, max_coverage], whatever the inputs.

    The loop that comes back keeps its evidence only where that is not yet enough.
    """
    if inputs.limits.max_coverage <= 0.0:
        return _none("", "", loop=CoverageLoop())
    budget = inputs.usable_units * inputs.units_per_unit_s * inputs.limits.utilisation
    if _is_absurd(inputs, budget):
        return _none("absurd", "a figure is no number or out of all bounds", loop=loop.fallen())
    learned = msgspec.structs.replace(
        loop,
        mix=mix.updated(loop.mix, inputs.segments),
        correction=loop.correction
        if loop.held
        else calibration.corrected(loop.correction, inputs.segments, loop.asked),
    )
    fallen = _impossible(inputs)
    if fallen is not None:
        return _none(*fallen, loop=learned.fallen())
    if inputs.hold is not None and inputs.hold.holds_coverage:
        return _spread(_held(inputs, inputs.hold, learned, gains=gains), inputs, budget=budget)
    most_allowed = reach(_traffic(learned, inputs))
    ceiling = ceiling_of(inputs, budget=budget, most_allowed=most_allowed)
    return _spread(steered(inputs, learned, ceiling=ceiling, gains=gains), inputs, budget=budget)


def _traffic(loop: CoverageLoop, inputs: CoverageInputs) -> tuple[Traffic, ...]:
    """Who asks, nobody of a segment at base being allowed anything."""
    traffic = mix.traffic_of(loop.mix)
    if not inputs.at_base:
        return traffic
    return tuple(
        dataclasses.replace(segment, allowed_share=0.0) if segment.segment in inputs.at_base else segment
        for segment in traffic
    )


def _is_absurd(inputs: CoverageInputs, budget: float) -> bool:
    limits = inputs.limits
    supply = (inputs.usable_units, inputs.units_per_unit_s, inputs.units_per_upgrade, budget)
    # A count that nobody can have counted is no shedding: taken for it, it would outweigh all that is true after it.
    seen = (inputs.planned_rate_per_s, inputs.powerful_p99_ms or 0.0, inputs.num_offered)
    quantities = (*supply, *seen, inputs.limit_ms)
    shares = (
        inputs.shed_share,
        limits.shed_allowance,
        limits.rise_share,
        limits.utilisation,
        limits.max_coverage,
        limits.exploration_share,
    )
    counts = [
        count
        for traffic in inputs.segments
        for count in (traffic.num_requests, traffic.num_allowed, traffic.probability_micro)
    ]
    believable = all(0.0 <= quantity <= MAX_QUANTITY for quantity in quantities)
    return not (
        believable and all(0.0 <= share <= 1.0 for share in shares) and all(0 <= count <= MAX_COUNT for count in counts)
    )


def _impossible(inputs: CoverageInputs) -> tuple[CoverageReason, str] | None:
    if inputs.usable_units <= 0.0:
        return "no_capacity", "no usable unit for upgrades at the window's end"
    if inputs.units_per_upgrade <= 0.0:
        return "no_capacity", "nothing says what an upgrade costs"
    if inputs.num_routers <= 0:
        return "blind", "no router reported in the window"
    if ALL in inputs.at_base:
        return "guardrail", "a guardrail of the whole cell is crossed"
    return None


def _none(reason: CoverageReason, detail: str, *, loop: CoverageLoop) -> CoverageDecision:
    return CoverageDecision(
        coverage=0.0, segment_shares=(), other_share=0.0, budget_units_s=0.0, reason=reason, detail=detail, loop=loop
    )


def _held(inputs: CoverageInputs, hold: Hold, loop: CoverageLoop, *, gains: Gains) -> Steered:
    """The operator's coverage. The loop stands by: what its PID remembered is void, and it goes on from there."""
    coverage = min(loop.coverage, inputs.limits.max_coverage)
    if hold.action == "override" and hold.coverage is not None:
        coverage = min(hold.coverage, inputs.limits.max_coverage) if hold.coverage >= 0.0 else 0.0
    return Steered(
        reason="operator",
        detail=f"{hold.action} by {hold.operator}: {hold.reason}",
        loop=CoverageLoop(
            coverage=coverage,
            limits=rules_of(inputs.limits),
            gains=gains,
            held=True,
            proven=loop.proven,
            room=loop.room,
            mix=loop.mix,
            correction=loop.correction,
            asked=loop.asked,
        ),
    )


def _spread(moved: Steered, inputs: CoverageInputs, *, budget: float) -> CoverageDecision:
    """The coverage over the segments, with what the calibration has learned that must be asked for to get it."""
    loop, limits = moved.loop, inputs.limits
    asked_for = loop.coverage * loop.correction
    shares = shares_for(
        asked_for,
        _traffic(loop, inputs),
        exploration_share=limits.exploration_share,
        estimates=inputs.estimates,
        num_effective=mix.num_effective(loop.mix),
        owed=inputs.owed,
    )
    # Those at base are listed whether or not they ask: who is not listed has the share of the others.
    by_segment = dict(shares.by_segment) | dict.fromkeys(inputs.at_base - {ALL, OTHER_SEGMENT}, 0.0)
    listed = tuple(SegmentShare(segment=segment, share=share) for segment, share in sorted(by_segment.items()))
    other_share = 0.0 if OTHER_SEGMENT in inputs.at_base else shares.other
    # Shares are rounded: what is short of the coverage by less than that is not short of it.
    is_short = shares.reached < asked_for - 10.0**-DECIMALS
    asked = Asked(shares=listed, other_share=other_share, saturated=is_short)
    return CoverageDecision(
        coverage=min(round(loop.coverage, DECIMALS), limits.max_coverage),
        segment_shares=listed,
        other_share=other_share,
        budget_units_s=budget,
        reason=moved.reason,
        detail=moved.detail,
        loop=msgspec.structs.replace(loop, asked=(asked, *loop.asked[:1])),
    )
