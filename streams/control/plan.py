"""What a tick plans with: the split of the pools, the speed of what each lever has, and the rate of requests. Pure.

A cell without levers has one, RMA, which may use every pool. Speeds are those of the units that a lever has: by its
curves on them, corrected by what was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from schemas.records import CellLimits
from schemas.records.fields import Lever
from streams.control import estimates, hold
from streams.control.estimates import Estimates, Speed
from streams.control.facts import CapacityFacts, LatencyFacts
from streams.control.hold import Hold
from streams.control.loop import Loop
from streams.control.settings import MICRO, MS_PER_S, ControlSettings
from streams.control.split import (
    NO_CURVES,
    Corrections,
    Curves,
    Granted,
    LeverSupply,
    Split,
    granted,
    resplit,
    supply_of,
)
from streams.control.state import CellState

# Where upstream leaves little room RMA is given what it does now and a quarter more: enough to find out when there is.
UPSTREAM_HEADROOM = 1.25
# Of the span, and at base too: a first step upwards must stay affordable, or nobody would find out.
UPSTREAM_PROBE_SHARE = 0.02
# A measurement further off its curve than this says that one of them is wrong, not how fast the pool is.
MOST_CORRECTION = 10.0


@dataclass(frozen=True, kw_only=True)
class Supply:
    """Units of one lever, and how fast one of them is."""

    units: float
    units_per_unit_s: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Supplies of both loops, what an upgrade costs, requests per second to plan for, and the operator's word in force.

    ``split`` and ``units`` of each pool say where the supplies come from; both are empty in a cell without levers.
    """

    split: Split
    units: Granted
    estimates: Estimates
    wide: Supply
    powerful: Supply
    units_per_upgrade: float
    rate_per_s: float
    hold: Hold | None


def planned(
    state: CellState,
    capacity: CapacityFacts,
    latency: LatencyFacts,
    *,
    settings: ControlSettings,
    curves: Curves = NO_CURVES,
) -> Plan:
    """Plan of one tick; measured value ``curves`` of a lever stand in for those of its terms."""
    limits = capacity.limits
    window_s = state.window_ms / MS_PER_S
    smoothed = estimates.updated(state.estimates, latency, window_s=window_s)
    rate_per_s = estimates.planned_rate_per_s(smoothed, latency, window_s=window_s)
    split = Split()
    units: Granted = {}
    wide = LeverSupply(
        units=max(0, capacity.usable_units_micro - capacity.noticed_units_micro) / MICRO,
        curve_units_per_unit_s=limits.units_per_unit_s,
    )
    powerful = LeverSupply(units=0.0, curve_units_per_unit_s=0.0)
    if limits.levers:
        corrections = Corrections(
            speeds=_corrections(smoothed, limits),
            most_work_units_s=_most_work(state.loop, limits, rate_per_s),
            curves=curves,
        )
        split = resplit(state.split, capacity, corrections, settings=settings)
        units = granted(split, capacity)
        wide, powerful = supply_of(units, limits.levers, "rma"), supply_of(units, limits.levers, "sbm")
        smoothed = _in_terms_of(smoothed, wide=wide, powerful=powerful)
    return Plan(
        split=split,
        units=units,
        estimates=smoothed,
        wide=_supply(wide, smoothed.wide),
        powerful=_supply(powerful, smoothed.powerful),
        units_per_upgrade=estimates.units_per_upgrade(
            smoothed,
            curve_units_per_unit_s=powerful.curve_units_per_unit_s,
            curve_units_per_upgrade=limits.units_per_upgrade,
        ),
        rate_per_s=rate_per_s,
        hold=hold.in_force(state.hold, end_ms=capacity.end_ms),
    )


def _supply(supply: LeverSupply, speed: Speed) -> Supply:
    return Supply(
        units=supply.units,
        units_per_unit_s=estimates.units_per_unit_s(speed, curve_units_per_unit_s=supply.curve_units_per_unit_s),
    )


def _in_terms_of(smoothed: Estimates, *, wide: LeverSupply, powerful: LeverSupply) -> Estimates:
    return msgspec.structs.replace(
        smoothed,
        wide=estimates.in_terms_of(smoothed.wide, curve_units_per_unit_s=wide.curve_units_per_unit_s),
        powerful=estimates.in_terms_of(smoothed.powerful, curve_units_per_unit_s=powerful.curve_units_per_unit_s),
    )


def _corrections(smoothed: Estimates, limits: CellLimits) -> Mapping[Lever, float]:
    """How many times its curves each lever was measured to do; for SBM in upgrades, whatever its replicas count in."""
    found: dict[Lever, float] = {}
    wide_curve = smoothed.wide.curve_units_per_unit_s
    if wide_curve > 0.0:
        found["rma"] = estimates.units_per_unit_s(smoothed.wide, curve_units_per_unit_s=wide_curve) / wide_curve
    powerful_curve, upgrade = smoothed.powerful.curve_units_per_unit_s, limits.units_per_upgrade
    if powerful_curve > 0.0 and upgrade > 0.0:
        speed = estimates.units_per_unit_s(smoothed.powerful, curve_units_per_unit_s=powerful_curve)
        cost = estimates.units_per_upgrade(
            smoothed, curve_units_per_unit_s=powerful_curve, curve_units_per_upgrade=upgrade
        )
        # A pool that was busy and finished nothing has cost that is no number of units; it is as slow as can be told.
        found["sbm"] = speed * upgrade / (cost * powerful_curve) if cost > 0.0 else 0.0
    return {lever: min(max(factor, 1.0 / MOST_CORRECTION), MOST_CORRECTION) for lever, factor in found.items()}


def _most_work(loop: Loop, limits: CellLimits, rate_per_s: float) -> Mapping[Lever, float]:
    """Where upstream leaves little room, the most extra candidates per second that RMA could do anything with."""
    if not loop.upstream_tight:
        return {}
    span = limits.max_candidates - limits.base_candidates
    extras = min(max(0.0, loop.target - limits.base_candidates), float(span))
    return {"rma": rate_per_s * max(UPSTREAM_HEADROOM * extras, UPSTREAM_PROBE_SHARE * span)}
