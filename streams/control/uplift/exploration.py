"""Whom to upgrade first, and how sure that is: from what was drawn by chance to an order for the coverage. Pure.

The gain of an upgrade in a segment is what it adds to a request, over what of it was served (Wald's ratio,
``statistics.delivered``), by decayed sums of two draws of chance: requests that drew an upgrade against those that drew
none, weighted with 1 / propensity, and users whose arm allows upgrades against those whose arm does not. The first
tells more where about half are upgraded, the second where most are; both are weighted by their precision. So neither
who was given upgrades, nor who was shed, moves the estimate. An upgrade costs the same in every segment of a cell, so
that the order by gain is the order by gain per cost.

1. Information that is not renewed fades. Decayed sums alone keep their variance when draws stop, as all of them fade
   together; so it is divided by the part of the segment's requests in the sums that were drawn, and doubled with each
   half-life in which the segment has not asked at all.
2. What was known of the model versions before is one more estimate, whose error is at least as large as what upgrades
   earned in the cell then. It says where to begin, and is soon outweighed.
3. Segments are shrunk towards each other (``statistics.shrinkage``): a new or rare one, and what is left of others in
   ``(other)``, stands near the mean of all, with the spread between segments as its error.
4. The order is by the upper confidence bound, mean + CONFIDENCE x error ("optimism in the face of uncertainty": Lai and
   Robbins, "Asymptotically efficient adaptive allocation rules", 1985; Auer, Cesa-Bianchi and Fischer, "Finite-time
   analysis of the multiarmed bandit problem", 2002), the same for the same sums.

A segment out of favour keeps its floor (``coverage.shares``), is measured by it, and comes back as its bound widens.
One in favour keeps as much that is not upgraded, or nobody would see it fall.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.records import UpgradeValue
from streams.control.uplift import layout
from streams.control.uplift.cohorts import HALF_LIFE_COHORTS
from streams.control.uplift.effects import Groups
from streams.control.uplift.layout import Faded
from streams.control.uplift.state import ALL, NONE_YET, MeasurementState, SegmentSums
from streams.control.uplift.statistics.delivered import delivered_effect
from streams.control.uplift.statistics.groups import together
from streams.control.uplift.statistics.shrinkage import Estimate, shrunk

# One-sided 95 %, as cautious upwards as the allocator is downwards.
CONFIDENCE: Final = 1.645
MICRO: Final = 1_000_000
# Segments are taken to differ by this share of the common gain at least: were they taken for alike while little is
# known, none would be worth a try.
LEAST_SPREAD: Final = 0.5
# Twenty half-lives: what nobody has asked for so long is known as little as can be told.
MOST_HALF_LIVES: Final = 20.0
_SBM_ARMS: Final = ("arm sbm", "arm both")
_OTHER_ARMS: Final = ("arm none", "arm rma")
_DRAWN: Final = ("upgrade yes", "upgrade no")


def segment_gains(state: MeasurementState) -> dict[str, Estimate]:
    """Gain per upgrade of each segment in units of currency, shrunk, in order of names; none where nothing is known."""
    now = max((sums.matured_cohort for sums in state.segments.values()), default=NONE_YET)
    whole = state.of(ALL)
    before = gain_of(layout.unpacked_faded(whole.prior))
    found: dict[str, Estimate | None] = {}
    for name in sorted(state.segments):
        if name != ALL and state.segments[name].matured_cohort != NONE_YET:
            found[name] = _known(state.segments[name], before=before, now=now)
    return shrunk(found, parent=_known(whole, before=before, now=now), least_spread=LEAST_SPREAD)


def upper_bounds(gains: Mapping[str, Estimate]) -> dict[str, float]:
    """The optimistic index of each segment, by which ``coverage.shares`` orders."""
    return {name: gain.effect + CONFIDENCE * gain.standard_error for name, gain in gains.items()}


def upgrade_values(gains: Mapping[str, Estimate]) -> tuple[UpgradeValue, ...]:
    """What routers weigh an upgrade by where there is not enough for all: the gain itself, not the optimistic one."""
    return tuple(
        UpgradeValue(segment=name, value_micro=max(0, round(MICRO * gain.effect))) for name, gain in gains.items()
    )


def gain_of(sums_BK: Faded) -> Estimate | None:
    """Gain per upgrade served, by both draws of chance; None where neither tells anything."""
    groups = Groups(sums_BK)
    drawn = _ratio(groups, (_DRAWN[0],), (_DRAWN[1],))
    arms = _ratio(groups, _SBM_ARMS, _OTHER_ARMS)
    if drawn is not None:
        drawn = Estimate(effect=drawn.effect, variance=drawn.variance / _part_drawn(groups))
    return _together(drawn, arms) if drawn is not None and arms is not None else drawn or arms


def _ratio(groups: Groups, treated: Sequence[str], control: Sequence[str]) -> Estimate | None:
    """Gain per upgrade served by one of the draws; None where too little was drawn, or served."""
    sides = [together(*(groups.group(name, "value") for name in names)) for names in (treated, control)]
    if min(side.weight for side in sides) <= 0.0:
        return None
    served = [together(*(groups.served(name, "sbm") for name in names)) for names in (treated, control)]
    found = delivered_effect(sides[0], sides[1], served[0], served[1])
    if found is None or found.standard_error <= 0.0:
        return None
    return Estimate(effect=found.effect, variance=found.standard_error**2)


def _known(sums: SegmentSums, *, before: Estimate | None, now: int) -> Estimate | None:
    """What is known of one segment: of the versions in force, and of those before them by point 2."""
    found = gain_of(layout.unpacked_faded(sums.steering))
    if found is not None:
        silent = min(MOST_HALF_LIVES, max(0, now - sums.matured_cohort) / HALF_LIFE_COHORTS)
        found = Estimate(effect=found.effect, variance=found.variance * 2.0**silent)
    earlier = gain_of(layout.unpacked_faded(sums.prior)) if sums.prior else None
    if earlier is None or before is None:
        return found
    doubted = Estimate(effect=earlier.effect, variance=earlier.variance + before.effect * before.effect)
    return doubted if found is None else _together(found, doubted)


def _together(one: Estimate, other: Estimate) -> Estimate:
    """Two independent estimates of the same, weighted by their precision."""
    weight = other.variance / (one.variance + other.variance)
    return Estimate(effect=weight * one.effect + (1.0 - weight) * other.effect, variance=weight * one.variance)


def _part_drawn(groups: Groups) -> float:
    """Part of the requests that might have been upgraded, in the decayed sums, for which it was drawn."""
    num_drawn, num_allowed = groups.num_requests(_DRAWN), groups.num_requests(_SBM_ARMS)
    return min(1.0, num_drawn / num_allowed) if num_allowed > 0 else 1.0
