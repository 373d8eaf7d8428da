"""One tick's decision: how many candidates a request may have. Pure, total, and deaf to NaN.

The order is by whose word counts more:

1. what makes extras impossible or blind puts them at zero at once: ``absurd``, ``no_capacity``, ``blind``;
2. an operator's freeze or override, within the span: ``operator``;
3. the budget: what the wide pool pays for, per request: ``capacity``;
4. the loop on latency, sheds and upstream time (``streams.control.pid``): ``latency``, ``shedding``, ``upstream``,
   ``rising``, ``steady``.

Every comparison is written so that NaN falls on the side of zero extras.
"""

import math
from dataclasses import dataclass
from typing import Literal

import msgspec

from schemas.records import CellLimits
from streams.control.error import Error, worst_error
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.hold import Hold
from streams.control.loop import Loop
from streams.control.pid import Slew, Step, step

Reason = Literal[
    "absurd",
    "no_capacity",
    "blind",
    "guardrail",
    "operator",
    "capacity",
    "latency",
    "shedding",
    "upstream",
    "rising",
    "steady",
]

MAX_QUANTITY = 1e12
# What a change of limits, gains or of who rules may move the target by, as a share of its span: half of the hundredth
# that is promised, as rounding may add a candidate.
BUMPLESS_SHARE = 0.005
# Of a candidate: an exact number of candidates stays one through the divisions of floats.
ROUNDING = 1e-6
# A smaller move, as a share of the span, is none that a person asks the reason of.
STEADY_SHARE = 0.001
# Where fewer requests than one in so many say what was spent upstream, a window has too few of them to wait for.
MAX_REQUESTS_PER_UPSTREAM = 4
# An upstream error below this leaves little room: p99 above four fifths of its setpoint.
TIGHT = 0.25


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What one decision is made from.

    ``usable_units`` are the wide pool's at the window's end less those announced to be taken back; where they are
    ``allotted``, those that the lever has of all pools.
    ``units_per_unit_s`` is its measured speed, ``planned_rate_per_s`` the request rate to plan for (0: none ever seen).
    ``num_requests`` are those of the window; the figures after it are of the last ``num_windows`` windows merged.
    ``shed_share`` is what was dropped of the extras offered, 0 where none were. ``upstream_p99_ms`` is of what callers
    spent before ranking, None where none of them said it. ``at_base``: a guardrail takes the lever back.
    """

    limits: CellLimits
    usable_units: float
    units_per_unit_s: float
    planned_rate_per_s: float
    num_routers: int
    num_requests: int
    num_samples: int
    p99_ms: float | None
    shed_share: float
    num_windows: int = 1
    upstream_p99_ms: float | None = None
    num_upstream_samples: int = 0
    allotted: bool = False
    at_base: bool = False
    hold: Hold | None = None

    @property
    def span(self) -> int:
        """The most extras that the limits allow."""
        return self.limits.max_candidates - self.limits.base_candidates


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Extra candidates per request, the budget behind them in candidates per second, why, and the loop thereafter."""

    extras: int
    budget_units_s: float
    reason: Reason
    detail: str
    loop: Loop


def decide(inputs: Inputs, *, loop: Loop, gains: Gains = DEFAULT_GAINS) -> Decision:
    """Decision of one tick of ``loop``; extras in [0, span], whatever the inputs.

    The loop that comes back keeps its evidence only where that is not yet enough.
    """
    budget = inputs.usable_units * inputs.units_per_unit_s * inputs.limits.utilisation
    fallen = _impossible(inputs, budget)
    if fallen is not None:
        reason, detail = fallen
        return Decision(extras=0, budget_units_s=0.0, reason=reason, detail=detail, loop=Loop())
    if inputs.hold is not None and inputs.hold.holds_candidates:
        return _held(inputs, inputs.hold, loop, budget=budget, gains=gains)
    cap = _affordable(inputs, budget)
    silence = _silence(inputs, gains)
    if silence is not None:
        return _kept(inputs, loop, cap=cap, budget=budget, silence=silence)
    return _steered(inputs, loop, cap=cap, budget=budget, gains=gains)


def _impossible(inputs: Inputs, budget: float) -> tuple[Reason, str] | None:
    limits = inputs.limits
    supply = (inputs.usable_units, inputs.units_per_unit_s, budget)
    times_ms = (limits.latency_limit_ms, inputs.p99_ms or 0.0, limits.upstream_limit_ms, inputs.upstream_p99_ms or 0.0)
    quantities = (*supply, *times_ms, inputs.planned_rate_per_s)
    shares = (inputs.shed_share, limits.shed_allowance, limits.rise_share)
    believable = all(0.0 <= quantity <= MAX_QUANTITY for quantity in quantities)
    if not (believable and all(0.0 <= share <= 1.0 for share in shares)):
        return "absurd", "a figure is no number or out of all bounds"
    if inputs.usable_units <= 0.0:
        return "no_capacity", "no unit allotted" if inputs.allotted else "no usable unit at the window's end"
    if inputs.num_routers <= 0:
        return "blind", "no router reported in the window"
    if inputs.at_base:
        return "guardrail", "a guardrail of the whole cell is crossed"
    return None


def _silence(inputs: Inputs, gains: Gains) -> str | None:
    """Why the loop cannot tell anything in this window, or None."""
    if inputs.num_requests <= 0:
        return "no request in the window"
    if inputs.p99_ms is None or inputs.num_samples < gains.min_samples:
        return f"{inputs.num_samples} samples so far, fewer than {gains.min_samples}"
    return None


def _upstream(inputs: Inputs, gains: Gains) -> tuple[float | None, str | None]:
    """Upstream p99 to steer by, and why nothing may rise before there is one; neither where it is not to be had."""
    limits, num_samples = inputs.limits, inputs.num_upstream_samples
    if limits.upstream_limit_ms <= 0.0 or inputs.upstream_p99_ms is None or num_samples <= 0:
        return None, None
    if num_samples >= gains.min_samples:
        return inputs.upstream_p99_ms, None
    if inputs.num_samples >= MAX_REQUESTS_PER_UPSTREAM * gains.min_samples:
        return None, None
    return None, f"{num_samples} upstream samples so far, fewer than {gains.min_samples}"


def _held(inputs: Inputs, hold: Hold, loop: Loop, *, budget: float, gains: Gains) -> Decision:
    """The operator's target. The loop stands by: what it remembered is void, and it goes on from that target."""
    extras = _extras(inputs, loop)
    if hold.action == "override" and hold.candidate_target is not None:
        extras = float(min(max(hold.candidate_target - inputs.limits.base_candidates, 0), inputs.span))
    return Decision(
        extras=_whole(inputs, extras),
        budget_units_s=budget,
        reason="operator",
        detail=f"{hold.action} by {hold.operator}: {hold.reason}",
        loop=Loop(target=inputs.limits.base_candidates + extras, limits=_rules(inputs.limits), gains=gains, held=True),
    )


def _kept(inputs: Inputs, loop: Loop, *, cap: float, budget: float, silence: str) -> Decision:
    """The target as it was, or what the pool still pays for of it."""
    extras = _extras(inputs, loop)
    capped = cap < extras
    return Decision(
        extras=_whole(inputs, min(extras, cap)),
        budget_units_s=budget,
        reason="capacity" if capped else "steady",
        detail=_capacity_detail(inputs, budget, cap) if capped else silence,
        loop=msgspec.structs.replace(loop, target=min(loop.target, inputs.limits.base_candidates + cap)),
    )


def _steered(inputs: Inputs, loop: Loop, *, cap: float, budget: float, gains: Gains) -> Decision:
    """One step of the loop, under the cap; anew, and moving by next to nothing, where what rules it has changed."""
    limits, extras = inputs.limits, _extras(inputs, loop)
    assert inputs.p99_ms is not None
    upstream_p99_ms, scarce = _upstream(inputs, gains)
    error = worst_error(
        inputs.p99_ms, shed_share=inputs.shed_share, upstream_p99_ms=upstream_p99_ms, limits=limits, gains=gains
    )
    if scarce is not None and error.value > 0.0:
        return _kept(inputs, loop, cap=cap, budget=budget, silence=scarce)
    hold_ticks = gains.shed_hold_ticks if inputs.shed_share > limits.shed_allowance else max(0, loop.hold_ticks - 1)
    rules = _rules(limits)
    changed = loop.held or (loop.limits is not None and (loop.limits, loop.gains) != (rules, gains))
    most = BUMPLESS_SHARE if changed else 1.0
    # A cell without a span has nothing to steer: any position is base.
    span = max(1, inputs.span)
    ceiling = cap / span
    moved = step(
        error.value,
        position=extras / span,
        ceiling=ceiling,
        memory=None if changed or loop.cause != error.cause else loop.memory,
        gains=gains,
        slew=Slew(rise=0.0 if hold_ticks else min(limits.rise_share, most), fall=most),
    )
    now = moved.position * span
    # The cap is what binds where the loop would go beyond it, or was beyond it and did not come down by itself.
    capped = inputs.span > 0 and ceiling < 1.0 and moved.position >= ceiling and (error.value > 0.0 or extras > cap)
    reason = _reason(error, moved, before=extras / span, capped=capped)
    notes = [
        _capacity_detail(inputs, budget, cap) if reason == "capacity" else _detail(inputs, error, moved, extras, gains)
    ]
    if changed:
        notes.append(f"limits, gains or ruler changed: moves by at most {BUMPLESS_SHARE:.1%}")
    if hold_ticks and error.value > 0.0:
        notes.append(f"too much was shed: no rise for {hold_ticks} ticks")
    return Decision(
        extras=_whole(inputs, now),
        budget_units_s=budget,
        reason=reason,
        detail="; ".join(notes),
        loop=Loop(
            target=limits.base_candidates + now,
            memory=moved.memory,
            cause=error.cause,
            hold_ticks=hold_ticks,
            limits=rules,
            gains=gains,
            upstream_tight=error.cause == "upstream" and error.value < TIGHT,
        ),
    )


def _reason(error: Error, moved: Step, *, before: float, capped: bool) -> Reason:
    if capped:
        return "capacity"
    change = moved.position - before
    if change > STEADY_SHARE:
        return "rising"
    at_base = moved.position <= 0.0 and error.value < 0.0
    return error.cause if change < -STEADY_SHARE or at_base else "steady"


def _rules(limits: CellLimits) -> CellLimits:
    """The limits that rule this loop: the levers' terms, which may be long, do not."""
    return msgspec.structs.replace(limits, levers=[]) if limits.levers else limits


def _extras(inputs: Inputs, loop: Loop) -> float:
    """Extras of the last target within the limits of today."""
    return min(max(0.0, loop.target - inputs.limits.base_candidates), float(inputs.span))


def _whole(inputs: Inputs, extras: float) -> int:
    return min(math.floor(extras + ROUNDING), inputs.span)


def _affordable(inputs: Inputs, budget: float) -> float:
    """Extras per request that the budget pays for, in [0, span]; never divides by a rate that is zero or tiny."""
    if budget >= inputs.planned_rate_per_s * inputs.span:
        return float(inputs.span)
    return budget / inputs.planned_rate_per_s


def _capacity_detail(inputs: Inputs, budget: float, cap: float) -> str:
    return (
        f"{inputs.usable_units:.2f} units pay for {budget:.0f} candidates/s,"
        f" {_whole(inputs, cap)} extras at {inputs.planned_rate_per_s:.1f} requests/s"
    )


def _detail(inputs: Inputs, error: Error, moved: Step, extras: float, gains: Gains) -> str:
    """The reading, the move, and which term of the loop it comes from, in candidates."""
    limits, span = inputs.limits, inputs.span
    if error.cause == "shedding":
        reading = f"{inputs.shed_share:.3f} of the extras dropped, allowed {limits.shed_allowance:.3f}"
    elif error.cause == "upstream":
        aim_ms = gains.setpoint_share * limits.upstream_limit_ms
        reading = f"upstream p99 {inputs.upstream_p99_ms:.1f} ms, aim {aim_ms:.1f} of {limits.upstream_limit_ms:.1f} ms"
    else:
        aim_ms = gains.setpoint_share * limits.latency_limit_ms
        reading = f"p99 {inputs.p99_ms:.1f} ms, aim {aim_ms:.1f} of {limits.latency_limit_ms:.1f} ms"
    if inputs.num_windows > 1:
        reading += f" ({inputs.num_samples} samples of {inputs.num_windows} windows)"
    return (
        f"{reading}: {extras:.1f} to {moved.position * span:.1f} extras"
        f" (P {moved.proportional * span:+.1f} I {moved.integral * span:+.1f} D {moved.derivative * span:+.1f})"
    )
