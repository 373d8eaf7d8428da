"""The most coverage that there can be: what the powerful pool pays for, and whom the arms allow. Pure."""

from dataclasses import dataclass
from typing import Literal

from streams.control.coverage.inputs import CoverageInputs


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The most coverage that there can be, within ``max_coverage``, and what binds it where that is less."""

    coverage: float
    binds: Literal["capacity", "arms"] | None
    detail: str


def ceiling_of(inputs: CoverageInputs, *, budget: float, most_allowed: float) -> Ceiling:
    """What ``budget`` work units per second pay for, and no more than the share of requests whose arm allows it."""
    span, per_coverage = inputs.limits.max_coverage, inputs.planned_rate_per_s * inputs.units_per_upgrade
    # Never divides by a rate that is zero or tiny.
    affordable = span if budget >= per_coverage * span else budget / per_coverage
    if affordable <= most_allowed:
        detail = (
            f"{inputs.usable_units:.2f} units pay for {budget:.0f} work units/s, {affordable:.4f} of"
            f" {inputs.planned_rate_per_s:.1f} requests/s at {inputs.units_per_upgrade:.0f} each"
        )
        return Ceiling(coverage=affordable, binds="capacity" if affordable < span else None, detail=detail)
    return Ceiling(
        coverage=min(span, most_allowed),
        binds="arms" if most_allowed < span else None,
        detail=f"the arms of {most_allowed:.4f} of the requests allow it",
    )
