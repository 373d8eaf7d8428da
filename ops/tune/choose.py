"""From identified processes to gains, and whether gains keep their margins at all of them. Pure.

SIMC (Skogestad, *Simple analytic rules for model reduction and PID controller tuning*, 2003): for a first-order process
with dead time the proportional gain is the lag times the integral gain, and there is no derivative. A lag below half a
tick counts as dead time (the half rule): a loop that looks once a tick cannot cancel it, and its controller is the
integral alone. Where Skogestad takes one closed-loop time, here the integral gain is the largest with which every
loop keeps a gain margin of 2 and a phase margin of 30 degrees, less a twentieth for what identification cannot tell,
rounded down.

Falls and rises have integral gains of their own; the latter is a multiple of the cell's ``rise_share``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ops.tune.identify import Process
from ops.tune.margins import Margins, margins, terms
from streams.control.gains import DEFAULT_GAINS, Gains

MIN_GAIN_MARGIN: Final = 2.0
MIN_PHASE_DEG: Final = 30.0
_KEPT_SHARE: Final = 0.95
_WHOLE_LAG_TICKS: Final = 0.5
_INTEGRAL_STEP: Final = 0.01
_RISE_STEP: Final = 0.05
_NUM_HALVINGS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Place:
    """A process at a position, in a cell that rises by ``rise_share`` of its span a tick at most."""

    process: Process
    position: float
    rise_share: float


def both_margins(place: Place, gains: Gains) -> tuple[Margins, Margins]:
    """Margins of the loop that falls, and of the one that rises."""
    fall = margins(place.process, terms(gains, position=place.position, rise_share=None))
    rise = margins(place.process, terms(gains, position=place.position, rise_share=place.rise_share))
    return fall, rise


def worst(places: Sequence[Place], gains: Gains) -> Margins:
    """The least of each margin, over all places and both directions."""
    return least([each for place in places for each in both_margins(place, gains)])


def least(each: Sequence[Margins]) -> Margins:
    """The least of each margin of at least one loop."""
    return Margins(
        gain=min(one.gain for one in each),
        phase_deg=min(one.phase_deg for one in each),
        sensitivity=max(one.sensitivity for one in each),
        is_stable=all(one.is_stable for one in each),
    )


def holds(loop: Margins) -> bool:
    """Whether margins are wide enough."""
    return loop.is_stable and loop.gain >= MIN_GAIN_MARGIN and loop.phase_deg >= MIN_PHASE_DEG


def recommended(places: Sequence[Place]) -> Gains:
    """Gains for at least one place; what no margin is about stays as it is by default."""
    lag_ticks = min(place.process.lag_ticks for place in places)
    if lag_ticks < _WHOLE_LAG_TICKS:
        lag_ticks = 0.0

    def falling(integral: float) -> Gains:
        return replace(DEFAULT_GAINS, integral=integral, proportional=min(1.0, lag_ticks * integral), derivative=0.0)

    def fall_holds(integral: float) -> bool:
        gains = falling(integral)
        return all(holds(both_margins(place, gains)[0]) for place in places)

    gains = falling(_largest(fall_holds, step=_INTEGRAL_STEP))

    def rise_holds(rise_integral: float) -> bool:
        rising = replace(gains, rise_integral=rise_integral)
        return all(holds(both_margins(place, rising)[1]) for place in places)

    return replace(gains, rise_integral=_largest(rise_holds, step=_RISE_STEP))


def _largest(keeps: Callable[[float], bool], *, step: float) -> float:
    """The largest gain in (0, 1] that keeps its margins, less what is kept back, in whole steps; one step at least."""
    low, high = 0.0, 1.0
    if keeps(high):
        low = high
    else:
        for _ in range(_NUM_HALVINGS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if keeps(middle) else (low, middle)
    return round(max(1, math.floor(_KEPT_SHARE * low / step)) * step, 6)
