"""One tick: what a cell's controller decides when it holds the capacity and the latency window of one index. Pure.

1. Measurements are smoothed, and evidence is gathered. Cohorts of requests whose outcomes are all there are counted,
   and what is known of each segment by then is said.
2. The pools are split among the levers, where the cell has any; else the candidate loop plans with all that is idle.
3. The candidate target: ``decide``.
4. The coverage: ``decide_coverage``.
5. The target and, where pools are split, their snapshots with what each lever has of them.
"""

from dataclasses import dataclass

import msgspec

from schemas.records import CandidateTarget, PoolSnapshot
from schemas.records.fields import Lever
from streams.control import evidence
from streams.control.coverage.decide_coverage import decide_coverage
from streams.control.coverage.inputs import CoverageInputs
from streams.control.coverage.loop import CoverageLoop
from streams.control.decide import Inputs, decide
from streams.control.facts import CapacityFacts, LatencyFacts
from streams.control.loop import Loop
from streams.control.plan import Plan, planned
from streams.control.pools import split_snapshots
from streams.control.settings import ControlSettings
from streams.control.state import NONE_YET, CellState
from streams.control.targets import Made, target_of
from streams.control.uplift.publish import ticked_measurement
from streams.control.uplift.state import ALL
from streams.control.uplift.summary import Measured, summary


@dataclass(frozen=True, kw_only=True)
class Ticked:
    """State after the tick, its target, and the pools as they are split (none where the cell has no levers)."""

    state: CellState
    target: CandidateTarget
    pools: tuple[PoolSnapshot, ...]


def ticked(state: CellState, capacity: CapacityFacts, latency: LatencyFacts, *, settings: ControlSettings) -> Ticked:
    """One tick of a cell."""
    num_skipped = capacity.window_index - state.last_tick - 1 if state.last_tick != NONE_YET else 0
    if num_skipped >= settings.validity_windows:
        # By then the last target has run out and routers are at base: they rise from there.
        state = msgspec.structs.replace(state, loop=Loop(), coverage=state.coverage.fallen())
    state = _gathered(state, latency)  # step 1
    state = msgspec.structs.replace(
        state,
        measured=ticked_measurement(
            state.measured,
            window_index=capacity.window_index,
            window_end_ms=capacity.end_ms,
            limits=capacity.limits,
            guardrails=settings.guardrails,
        ),
    )
    measured = summary(state.measured, limits=capacity.limits, fair_share=settings.guardrails.fair_share)
    plan = planned(state, capacity, latency, curves=measured.curves, settings=settings)  # step 2
    inputs = _inputs(state.loop, capacity, latency, plan, measured)
    decision = decide(inputs, loop=state.loop, gains=settings.gains)  # step 3
    coverage_inputs = _coverage_inputs(state.coverage, capacity, latency, plan, measured)
    coverage = decide_coverage(coverage_inputs, loop=state.coverage, gains=settings.gains)  # step 4
    notes = [note for note in (state.note, latency.exclusion) if note]
    if num_skipped:
        notes.append(f"{num_skipped} windows before this one were skipped")
    made = Made(
        capacity=capacity,
        latency=latency,
        inputs=inputs,
        decision=decision,
        coverage_inputs=coverage_inputs,
        coverage=coverage,
        seen=state.loop.evidence,
        seen_powerful=state.coverage.evidence,
        notes=tuple(notes),
        measured=measured,
    )
    reasons: dict[Lever, str] = {"rma": "upstream"} if decision.loop.upstream_tight else {}
    return Ticked(  # step 5
        state=msgspec.structs.replace(
            state,
            last_tick=capacity.window_index,
            num_ticks=state.num_ticks + 1,
            loop=decision.loop,
            coverage=coverage.loop,
            split=plan.split,
            estimates=plan.estimates,
            hold=plan.hold,
            measured=msgspec.structs.replace(state.measured, taken=()),
            note="",
        ),
        target=target_of(made, cell=state.cell, window_ms=state.window_ms, settings=settings),
        pools=split_snapshots(capacity, plan, reasons=reasons, settings=settings),
    )


def _gathered(state: CellState, latency: LatencyFacts) -> CellState:
    """State with what the window says among the evidence of both loops."""
    seen = evidence.gathered(state.loop.evidence, evidence.of_requests(latency))
    powerful = evidence.gathered(state.coverage.evidence, evidence.of_powerful(latency))
    return msgspec.structs.replace(
        state,
        loop=msgspec.structs.replace(state.loop, evidence=seen),
        coverage=msgspec.structs.replace(state.coverage, evidence=powerful),
    )


def _inputs(loop: Loop, capacity: CapacityFacts, latency: LatencyFacts, plan: Plan, measured: Measured) -> Inputs:
    seen = loop.evidence
    return Inputs(
        limits=capacity.limits,
        usable_units=plan.wide.units,
        units_per_unit_s=plan.wide.units_per_unit_s,
        planned_rate_per_s=plan.rate_per_s,
        num_routers=latency.num_routers,
        num_requests=latency.num_requests,
        num_samples=evidence.num_samples(seen),
        p99_ms=evidence.p99_ms(seen),
        shed_share=evidence.shed_share(seen),
        num_windows=len(seen.windows),
        upstream_p99_ms=evidence.upstream_p99_ms(seen),
        num_upstream_samples=evidence.num_upstream_samples(seen),
        allotted=bool(capacity.limits.levers),
        at_base=ALL in measured.segments_at_base("rma"),
        hold=plan.hold,
    )


def _coverage_inputs(
    loop: CoverageLoop, capacity: CapacityFacts, latency: LatencyFacts, plan: Plan, measured: Measured
) -> CoverageInputs:
    seen = loop.evidence
    return CoverageInputs(
        limits=capacity.limits,
        usable_units=plan.powerful.units,
        units_per_unit_s=plan.powerful.units_per_unit_s,
        units_per_upgrade=plan.units_per_upgrade,
        planned_rate_per_s=plan.rate_per_s,
        num_routers=latency.num_routers,
        num_requests=latency.num_requests,
        segments=latency.segments,
        powerful_p99_ms=evidence.p99_ms(seen),
        num_samples=evidence.num_samples(seen),
        shed_share=evidence.shed_share(seen),
        num_windows=len(seen.windows),
        num_offered=latency.powerful.offered,
        estimates=measured.estimates,
        at_base=measured.segments_at_base("sbm"),
        owed=measured.owed,
        hold=plan.hold,
    )
