"""One tick's decision: how many extra candidates a request may have. Pure, total, and deaf to NaN.

The order is by whose word counts more:

1. what makes extras impossible or blind puts them at zero at once: ``absurd``, ``no_capacity``, ``blind``;
2. an operator's freeze or override, within the span: ``operator``;
3. the budget: what the wide pool pays for, per request: ``capacity``;
4. the loop on latency and sheds (``steer``): ``latency``, ``shedding``, ``rising``, ``steady``.

Every comparison is written so that NaN falls on the side of zero extras.
"""

from dataclasses import dataclass
from typing import Literal

from schemas.records import CellLimits
from streams.control.state import Hold

Reason = Literal["absurd", "no_capacity", "blind", "operator", "capacity", "latency", "shedding", "rising", "steady"]

# Below this many samples a p99 is the largest value or near it: noise, on which nothing may rise.
MIN_LATENCY_SAMPLES = 50
# From here to the limit nothing rises: a step up may not be what breaks the limit.
HOLD_FROM_SHARE = 0.9
# So far above the limit extras are no help to anybody.
FALL_FROM_RATIO = 2.0
MAX_QUANTITY = 1e12


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What one decision is made from.

    ``usable_units`` are the wide pool's at the window's end less those announced to be taken back.
    ``units_per_unit_s`` is its measured speed, ``planned_rate_per_s`` the request rate to plan for (0: none ever seen).
    ``shed_share`` is what was dropped of the extras offered in the window, 0 where none were.
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
    hold: Hold | None = None

    @property
    def span(self) -> int:
        """The most extras that the limits allow."""
        return self.limits.max_candidates - self.limits.base_candidates


@dataclass(frozen=True)
class Decision:
    """Extra candidates per request, the budget behind them in candidates per second, and why."""

    extras: int
    budget_units_s: float
    reason: Reason
    detail: str


def decide(inputs: Inputs, *, previous_extras: int) -> Decision:
    """Decision of one tick after one that left ``previous_extras``; extras in [0, span], whatever the inputs."""
    budget = inputs.usable_units * inputs.units_per_unit_s * inputs.limits.utilisation
    fallen = _impossible(inputs, budget)
    if fallen is not None:
        return fallen
    previous = min(max(previous_extras, 0), inputs.span)
    if inputs.hold is not None:
        return _held(inputs, inputs.hold, previous=previous, budget=budget)
    cap = _affordable(inputs, budget)
    steered, reason, detail = steer(inputs, previous_extras=previous)
    steered = min(max(steered, 0), inputs.span)
    if cap < steered:
        return Decision(cap, budget, "capacity", _capacity_detail(inputs, budget, cap))
    return Decision(steered, budget, reason, detail)


def steer(inputs: Inputs, *, previous_extras: int) -> tuple[int, Reason, str]:
    """Extras that latency and sheds allow, with reason and detail: the loop, without the budget.

    Above the limit extras shrink by limit / p99, from FALL_FROM_RATIO x limit on to zero. A shed share s over its
    allowance a shrinks them by (1 - s) / (1 - a): to what was really ranked. The smaller of the two counts. Else they
    rise by ``rise_share`` of the span, at least by one, unless p99 is near the limit or nobody can tell.
    """
    down = [pull for pull in (_latency_pull(inputs, previous_extras), _shed_pull(inputs, previous_extras)) if pull]
    if down:
        return min(down, key=lambda pull: pull[0])
    if inputs.num_requests <= 0:
        return previous_extras, "steady", "no request in the window"
    if inputs.p99_ms is None or inputs.num_samples < MIN_LATENCY_SAMPLES:
        return previous_extras, "steady", f"{inputs.num_samples} samples, fewer than {MIN_LATENCY_SAMPLES}"
    if not inputs.p99_ms < HOLD_FROM_SHARE * inputs.limits.latency_limit_ms:
        return previous_extras, "steady", f"p99 {inputs.p99_ms:.1f} ms is near the limit"
    if previous_extras >= inputs.span:
        return inputs.span, "steady", "at the most that the limits allow"
    raised = min(inputs.span, previous_extras + max(1, int(inputs.limits.rise_share * inputs.span)))
    return raised, "rising", f"p99 {inputs.p99_ms:.1f} ms leaves room: {previous_extras} to {raised} extras"


def _impossible(inputs: Inputs, budget: float) -> Decision | None:
    figures = (inputs.usable_units, inputs.units_per_unit_s, budget, inputs.planned_rate_per_s)
    believable = all(0.0 <= figure <= MAX_QUANTITY for figure in figures) and 0.0 <= inputs.shed_share <= 1.0
    if not believable or (inputs.p99_ms is not None and not 0.0 <= inputs.p99_ms <= MAX_QUANTITY):
        return Decision(0, 0.0, "absurd", "a figure is no number or out of all bounds")
    if inputs.usable_units <= 0.0:
        return Decision(0, 0.0, "no_capacity", "no usable unit at the window's end")
    if inputs.num_routers <= 0:
        return Decision(0, 0.0, "blind", "no router reported in the window")
    return None


def _held(inputs: Inputs, hold: Hold, *, previous: int, budget: float) -> Decision:
    extras = previous
    if hold.action == "override" and hold.candidate_target is not None:
        extras = min(max(hold.candidate_target - inputs.limits.base_candidates, 0), inputs.span)
    return Decision(extras, budget, "operator", f"{hold.action} by {hold.operator}: {hold.reason}")


def _affordable(inputs: Inputs, budget: float) -> int:
    """Extras per request that the budget pays for, in [0, span]; never divides by a rate that is zero or tiny."""
    if budget >= inputs.planned_rate_per_s * inputs.span:
        return inputs.span
    return int(budget / inputs.planned_rate_per_s)


def _capacity_detail(inputs: Inputs, budget: float, cap: int) -> str:
    return (
        f"{inputs.usable_units:.2f} units pay for {budget:.0f} candidates/s,"
        f" {cap} extras at {inputs.planned_rate_per_s:.1f} requests/s"
    )


def _latency_pull(inputs: Inputs, previous: int) -> tuple[int, Reason, str] | None:
    limit_ms, p99_ms = inputs.limits.latency_limit_ms, inputs.p99_ms
    if p99_ms is None or inputs.num_samples < MIN_LATENCY_SAMPLES or p99_ms <= limit_ms:
        return None
    extras = 0 if p99_ms >= FALL_FROM_RATIO * limit_ms else int(previous * (limit_ms / p99_ms))
    return extras, "latency", f"p99 {p99_ms:.1f} ms over the limit {limit_ms:.1f} ms: {previous} to {extras} extras"


def _shed_pull(inputs: Inputs, previous: int) -> tuple[int, Reason, str] | None:
    share, allowance = inputs.shed_share, inputs.limits.shed_allowance
    # An allowance of 1 is never exceeded, so that the divisor below is positive.
    if share <= allowance:
        return None
    extras = int(previous * ((1.0 - share) / (1.0 - allowance)))
    return extras, "shedding", f"{share:.3f} of the extras dropped, allowed {allowance:.3f}: {previous} to {extras}"
