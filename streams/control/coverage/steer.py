"""Where the coverage goes at one tick: up to what capacity and arms allow, trimmed by the powerful route's tail. Pure.

Position, errors and gains are those of the candidate loop (``streams.control.pid``, ``streams.control.error``), with
``max_coverage`` as the span: down as fast as it is wrong, up by ``rise_share`` at most.

Nothing is known of a route that nobody uses. So where there are too few samples, a small share of requests tries it,
enough for ``min_samples`` within PROBE_TICKS; what is beyond that is held. A route that was left at zero is tried again
after two ticks, then four, and so on up to RETRY_TICKS while it fails, so that a slow model is no oscillation. A
route of which nothing is known yet is tried more boldly. What it was last seen to bear is known: up to there the
coverage returns by full steps when capacity or sight does, however few requests there are. How much room it showed next
to idle is known too, and makes the gain upwards fit the route.
"""

from dataclasses import dataclass, replace

import msgspec

from schemas.records import CellLimits
from streams.control.coverage.ceiling import Ceiling
from streams.control.coverage.inputs import CoverageInputs, CoverageReason
from streams.control.coverage.loop import CoverageLoop
from streams.control.error import ROOM, Error, latency_error, shed_error
from streams.control.evidence import Evidence
from streams.control.gains import Gains
from streams.control.pid import Slew, Step, step

# Half of the hundredth of the span that a change of limits, gains or of who rules may move the coverage by.
BUMPLESS_SHARE = 0.005
# A smaller move, as a share of the span, is none that a person asks the reason of.
STEADY_SHARE = 0.001
# Of the span; with many requests it is known within a few ticks, and no more than this rocks where a route is bad.
PROBE_SHARE = 0.02
PROBE_TICKS = 20
# A route of which nothing bad is known is tried by twice as many, and known in half the time.
FIRST_TRY = 2
RETRY_TICKS = 64
# Room of a route whose p99 is 2/9 of its setpoint when idle: the gains are made for that, or for more.
FULL_ROOM = 3.5
# Three times the gain upwards is about that downwards, so that noise, which goes both ways, leaves it in place.
MOST_PACE = 3.0
# Windows that count in one step: with the gains at hand four double the coverage at most.
MOST_COUNTED = 4


@dataclass(frozen=True, kw_only=True)
class Steered:
    """The loop after the tick, whose ``coverage`` is the target, and why."""

    reason: CoverageReason
    detail: str
    loop: CoverageLoop


def steered(inputs: CoverageInputs, loop: CoverageLoop, *, ceiling: Ceiling, gains: Gains) -> Steered:
    """One step of the loop under the ceiling; anew, and moving by next to nothing, where what rules it has changed."""
    rules = rules_of(inputs.limits)
    is_ruled_anew = loop.limits is not None and (loop.limits, loop.gains) != (rules, gains)
    changed = loop.held or is_ruled_anew
    coverage = min(loop.coverage, inputs.limits.max_coverage)
    loop = msgspec.structs.replace(
        loop,
        coverage=coverage,
        proven=min(loop.proven, coverage) if is_ruled_anew else loop.proven,
        room=0.0 if is_ruled_anew else loop.room,
        memory=None if changed else loop.memory,
        hold_ticks=max(0, loop.hold_ticks - 1),
        retry_ticks=max(0, loop.retry_ticks - 1),
        limits=rules,
        gains=gains,
        held=False,
    )
    most = BUMPLESS_SHARE if changed else 1.0
    silence = _silence(inputs, loop, gains)
    if silence is not None:
        return _kept(inputs, loop, ceiling=ceiling, most=most, silence=silence)
    return _moved(inputs, loop, ceiling=ceiling, most=most, gains=gains)


def rules_of(limits: CellLimits) -> CellLimits:
    """The limits that rule this loop: the levers' terms, which may be long, do not."""
    return msgspec.structs.replace(limits, levers=[]) if limits.levers else limits


def _silence(inputs: CoverageInputs, loop: CoverageLoop, gains: Gains) -> str | None:
    """Why the loop cannot tell anything in this window, or None."""
    if inputs.num_requests <= 0:
        return "no request in the window"
    if loop.coverage <= 0.0:
        return "no upgrade was asked for"
    if inputs.powerful_p99_ms is None or inputs.num_samples < gains.min_samples:
        return f"{inputs.num_samples} samples so far, fewer than {gains.min_samples}"
    return None


def _kept(inputs: CoverageInputs, loop: CoverageLoop, *, ceiling: Ceiling, most: float, silence: str) -> Steered:
    """The coverage as it was, or what may be had of it; where it is next to nothing, enough to learn from."""
    span = inputs.limits.max_coverage
    coverage = min(loop.coverage, ceiling.coverage)
    reason: CoverageReason = "steady"
    detail = silence
    if ceiling.binds is not None and ceiling.coverage < loop.coverage:
        reason, detail = ceiling.binds, ceiling.detail
    elif coverage <= 0.0 and loop.retry_ticks > 0:
        detail = f"{silence}; the powerful route failed, it is tried again in {loop.retry_ticks} ticks"
    elif coverage > 0.0 and (inputs.shed_share > inputs.limits.shed_allowance or loop.hold_ticks > 0):
        detail = f"{silence}; too much was shed: no rise"
    elif inputs.num_requests > 0 and loop.retry_ticks == 0:
        rise = min(inputs.limits.rise_share, most) * span
        probe = _probe(inputs, loop, ceiling=ceiling)
        proven = min(loop.proven, ceiling.coverage)
        if coverage < proven and loop.hold_ticks == 0:
            coverage = min(proven, coverage + rise)
            reason, detail = "rising", f"{silence}; {loop.proven:.4f} was borne before"
        elif coverage <= probe:
            coverage = min(probe, coverage + rise)
            reason = "probing"
    return Steered(
        reason=reason,
        detail=detail,
        loop=msgspec.structs.replace(
            loop,
            coverage=coverage,
            # What still comes of a route that was left says nothing of how it will do when it is tried again.
            evidence=loop.evidence if loop.coverage > 0.0 else Evidence(),
        ),
    )


def _probe(inputs: CoverageInputs, loop: CoverageLoop, *, ceiling: Ceiling) -> float:
    """Coverage that gives ``min_samples`` within PROBE_TICKS, one tick's rise at most; the first time twice of both.

    Twice is for a route of which nothing is known, so nothing bad either, and no more than half of what there can be.
    """
    assert loop.gains is not None
    span = inputs.limits.max_coverage
    fewest = loop.gains.min_samples / (PROBE_TICKS * inputs.num_requests)
    careful = min(inputs.limits.rise_share * span, max(PROBE_SHARE * span, fewest))
    is_first = loop.cause is None and loop.num_failures == 0 and loop.proven <= 0.0
    bold = min(inputs.limits.rise_share * span, fewest) * FIRST_TRY if is_first else 0.0
    return min(ceiling.coverage, max(careful, min(bold, ceiling.coverage / 2.0)))


def _moved(inputs: CoverageInputs, loop: CoverageLoop, *, ceiling: Ceiling, most: float, gains: Gains) -> Steered:
    limits, span = inputs.limits, inputs.limits.max_coverage
    error = _worse_error(inputs, gains)
    hold_ticks = gains.shed_hold_ticks if inputs.shed_share > limits.shed_allowance else loop.hold_ticks
    may_rise = hold_ticks == 0 and loop.retry_ticks == 0
    before, most_now = loop.coverage / span, min(1.0, ceiling.coverage / span)
    moved = step(
        error.value,
        position=before,
        ceiling=most_now,
        memory=loop.memory if loop.cause == error.cause else None,
        gains=gains,
        slew=Slew(rise=min(limits.rise_share, most) if may_rise else 0.0, fall=most),
    )
    room = max(loop.room, error.value)
    if error.value > 0.0 and may_rise:
        # As far as the route was seen to bear it, there is nothing to find out step by step.
        further = max(loop.proven / span, _further(moved, inputs.num_windows, before=before, error=error, room=room))
        known = min(further, most_now, before + min(limits.rise_share, most))
        moved = replace(moved, position=max(moved.position, known))
    # The ceiling is what binds where the loop would go beyond it, or was beyond it and did not come down by itself.
    capped = ceiling.binds is not None and moved.position >= most_now and (error.value > 0.0 or before > most_now)
    num_failures = loop.num_failures
    retry_ticks = loop.retry_ticks
    if moved.position <= 0.0 and error.value < 0.0:
        num_failures += 1
        retry_ticks = min(RETRY_TICKS, 2 ** min(num_failures, RETRY_TICKS))
    elif error.value > 0.0:
        num_failures = 0
    notes = [ceiling.detail if capped else _detail(inputs, error, moved, before=before, gains=gains)]
    if most < 1.0:
        notes.append(f"limits, gains or ruler changed: moves by at most {BUMPLESS_SHARE:.1%}")
    if hold_ticks and error.value > 0.0:
        notes.append(f"too much was shed: no rise for {hold_ticks} ticks")
    return Steered(
        reason=ceiling.binds if capped and ceiling.binds is not None else _reason(error, moved, before=before),
        detail="; ".join(notes),
        loop=msgspec.structs.replace(
            loop,
            coverage=moved.position * span,
            memory=moved.memory,
            cause=error.cause,
            hold_ticks=hold_ticks,
            # Measured where it was before the step.
            proven=min(loop.proven, moved.position * span) if error.value < 0.0 else max(loop.proven, loop.coverage),
            room=room,
            retry_ticks=retry_ticks,
            num_failures=num_failures,
            evidence=Evidence(),
        ),
    )


def _further(moved: Step, num_windows: int, *, before: float, error: Error, room: float) -> float:
    """How far up a step goes where it is known how much room the route had next to idle.

    In an M/M/1 queue the error is linear in the load: e = room x (1 - load / rest). So e / room tells how far it is to
    the rest, whatever the route, and one with little room goes there by larger steps for the same error. Below half of
    the rest every window counts that a small cell waited for its samples, up to twice of what it is now. Where the room
    is beyond what an error can say, none of that is known.
    """
    if room >= ROOM:
        return moved.position
    pace = max(1.0, min(MOST_PACE, FULL_ROOM / room))
    paced = moved.position + (pace - 1.0) * moved.integral
    if error.value <= room / 2.0:
        return paced
    return max(paced, min(2.0 * before, paced + (min(num_windows, MOST_COUNTED) - 1) * pace * moved.integral))


def _worse_error(inputs: CoverageInputs, gains: Gains) -> Error:
    """The worse of the errors of the powerful route's p99 and of its sheds."""
    assert inputs.powerful_p99_ms is not None
    latency = latency_error(inputs.powerful_p99_ms, setpoint_ms=gains.setpoint_share * inputs.limit_ms)
    shedding = shed_error(inputs.shed_share, allowance=inputs.limits.shed_allowance)
    return Error(shedding, "shedding") if shedding < latency else Error(latency, "latency")


def _reason(error: Error, moved: Step, *, before: float) -> CoverageReason:
    change = moved.position - before
    if change > STEADY_SHARE:
        return "rising"
    if change < -STEADY_SHARE or (moved.position <= 0.0 and error.value < 0.0):
        return "shedding" if error.cause == "shedding" else "latency"
    return "steady"


def _detail(inputs: CoverageInputs, error: Error, moved: Step, *, before: float, gains: Gains) -> str:
    """The reading, the move, and which term of the loop it comes from, as shares of all requests."""
    span = inputs.limits.max_coverage
    if error.cause == "shedding":
        reading = f"{inputs.shed_share:.3f} of the upgrades dropped, allowed {inputs.limits.shed_allowance:.3f}"
    else:
        aim_ms = gains.setpoint_share * inputs.limit_ms
        reading = f"powerful p99 {inputs.powerful_p99_ms:.1f} ms, aim {aim_ms:.1f} of {inputs.limit_ms:.1f} ms"
    if inputs.num_windows > 1:
        reading += f" ({inputs.num_samples} samples of {inputs.num_windows} windows)"
    return (
        f"{reading}: coverage {before * span:.4f} to {moved.position * span:.4f}"
        f" (P {moved.proportional * span:+.4f} I {moved.integral * span:+.4f} D {moved.derivative * span:+.4f})"
    )
