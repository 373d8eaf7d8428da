"""The loop of measurement closed: windows of a world of known truth, what is known of them, and shares made of that."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from streams.control.coverage import mix
from streams.control.coverage.mix import Mix, Traffic
from streams.control.coverage.shares import shares_for
from streams.control.uplift.cohorts import matured
from streams.control.uplift.state import MeasurementState
from streams.control.uplift.summary import Measured, summary
from streams.control.uplift.taking_in import take_in
from tests.measured_world import MeasuredWorld, Tick

EXPLORATION = 0.05


@dataclass(frozen=True, kw_only=True)
class Step:
    """One tick: the shares that were in force, those that come next, and what they are worth to an oracle's.

    ``worth`` is what upgrades earn by the true gains, as a share of what they would at the same coverage in the order
    of these; ``worth_by_absolute`` the same of shares in the order of what requests are worth without any upgrade.
    """

    shares: Mapping[str, float]
    next_shares: Mapping[str, float]
    worth: float
    worth_by_absolute: float
    measured: Measured
    tick: Tick


class ClosedLoop:
    """A world steered by what is measured of it, at a fixed coverage."""

    def __init__(self, world: MeasuredWorld, *, coverage: float) -> None:
        self.world = world
        self.state = MeasurementState()
        self._coverage = coverage
        self._mix = Mix()
        self._shares: Mapping[str, float] = {segment.name: coverage for segment in world.segments}

    def run(self, num_ticks: int) -> list[Step]:
        """So many more ticks."""
        return [self._step() for _ in range(num_ticks)]

    def take(self, tick: Tick) -> None:
        """What a tick tells, and nothing made of it."""
        self._mix = mix.updated(self._mix, tick.traffic)
        for window in tick.windows:
            self.state = take_in(self.state, window)
        self.state = matured(self.state, tick.end_ms, window_index=tick.window_index)

    def _step(self) -> Step:
        tick = self.world.tick(self._shares)
        self.take(tick)
        measured = summary(self.state)
        shares, traffic = self._shares, mix.traffic_of(self._mix)
        self._shares = self._ordered(measured.estimates, traffic)
        segments = self.world.segments
        best = _value(self._ordered({each.name: each.gain for each in segments}, traffic, 0.0), traffic, self.world)
        absolute = self._ordered({each.name: each.absolute for each in segments}, traffic)
        return Step(
            shares=shares,
            next_shares=self._shares,
            worth=_value(self._shares, traffic, self.world) / best,
            worth_by_absolute=_value(absolute, traffic, self.world) / best,
            measured=measured,
            tick=tick,
        )

    def _ordered(
        self, estimates: Mapping[str, float], traffic: tuple[Traffic, ...], exploration_share: float = EXPLORATION
    ) -> Mapping[str, float]:
        found = shares_for(
            self._coverage,
            traffic,
            exploration_share=exploration_share,
            estimates=estimates,
            num_effective=mix.num_effective(self._mix),
        )
        return {segment.name: found.of(segment.name) for segment in self.world.segments}


def _value(shares: Mapping[str, float], traffic: tuple[Traffic, ...], world: MeasuredWorld) -> float:
    gains = {segment.name: segment.gain for segment in world.segments}
    return math.fsum(each.weight * each.allowed_share * shares[each.segment] * gains[each.segment] for each in traffic)
