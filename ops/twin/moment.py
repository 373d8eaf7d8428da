"""How a cell serves while nothing changes: what each route takes on and drops, and how long results take. Pure.

Shape legend: B buckets of a latency histogram.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.simulator.scenario_model import Scenario
from ops.twin.play import CellPlay
from ops.twin.queues import Flow, LatencyScale, Route, flow
from ops.twin.service import ServiceTimes


@dataclass(frozen=True)
class Demand:
    """Requests per second; extra candidates and powerful upgrades that each is assigned on average."""

    rate_s: float
    extras: float
    upgrades: float


@dataclass(frozen=True)
class Ability:
    """Work units per second of the two opportunistic routes, and units at work behind them."""

    wide_s: float
    wide_units: float
    powerful_s: float
    powerful_units: float


@dataclass(frozen=True)
class Moment:
    """A constant state. ``latency_B`` is the distribution of the time to the last wanted answer."""

    wide: Flow
    powerful: Flow
    latency_B: NDArray[np.float64]
    wide_B: NDArray[np.float64]
    powerful_B: NDArray[np.float64]
    base_late_share: float
    wide_units: float
    powerful_units: float


class Serving:
    """A cell's serving side. Moments are remembered: windows without changes are looked up."""

    _MAX_REMEMBERED = 64

    def __init__(self, play: CellPlay, *, times: ServiceTimes) -> None:
        scenario = play.scenario
        self._limits = play.limits
        self._times = times
        self._deadline_ms = float(scenario.requests.deadline_ms)
        self._allowed_ms = times.allowed_ms(self._deadline_ms)
        self.scale = LatencyScale(deadline_ms=self._deadline_ms, times=times)
        self.num_dedicated = _num_dedicated(scenario, play)
        self._remembered: dict[tuple[Demand, Ability], Moment] = {}
        # Of the last rate: within a window only targets and pools change.
        self._base_rate_s = 0.0
        self._base = Flow()
        self._base_B = self.scale.answers(self._base)

    def moment(self, demand: Demand, ability: Ability) -> Moment:
        """The state under a demand with what the pools can do."""
        key = (demand, ability)
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= self._MAX_REMEMBERED:
                self._remembered.clear()
            known = self._remembered[key] = self._made(demand, ability)
        return known

    def _made(self, demand: Demand, ability: Ability) -> Moment:
        if demand.rate_s != self._base_rate_s:
            self._base_rate_s = demand.rate_s
            self._base = self._base_flow(demand.rate_s)
            self._base_B = self.scale.answers(self._base)
        base, base_B = self._base, self._base_B
        latency_B = base_B
        wide = flow(
            demand.rate_s * demand.extras,
            units_per_item=demand.extras,
            route=Route(capacity_s=ability.wide_s, num_units=ability.wide_units, allowed_ms=self._allowed_ms),
            times=self._times,
        )
        wide_B = powerful_B = base_B
        if wide.sent_s > 0.0:
            wide_B = self.scale.answers(wide, allowed_ms=self._allowed_ms)
            latency_B = latency_B * self._waited(wide_B, wide.sent_s / demand.rate_s / demand.extras)
        per_upgrade = self._limits.units_per_upgrade
        powerful = flow(
            demand.rate_s * demand.upgrades * per_upgrade,
            units_per_item=per_upgrade,
            route=Route(capacity_s=ability.powerful_s, num_units=ability.powerful_units, allowed_ms=self._allowed_ms),
            times=self._times,
        )
        if powerful.sent_s > 0.0:
            powerful_B = self.scale.answers(powerful, allowed_ms=self._allowed_ms)
            latency_B = latency_B * self._waited(powerful_B, powerful.sent_s / demand.rate_s / per_upgrade)
        return Moment(
            wide=wide,
            powerful=powerful,
            latency_B=latency_B,
            wide_B=wide_B,
            powerful_B=powerful_B,
            base_late_share=self._late(base),
            wide_units=ability.wide_units,
            powerful_units=ability.powerful_units,
        )

    @staticmethod
    def _waited(answer_B: NDArray[np.float64], share: float) -> NDArray[np.float64]:
        """Distribution of what a request waits for an answer that only a share of the requests want."""
        return 1.0 - min(1.0, share) * (1.0 - answer_B)

    def _base_flow(self, rate_s: float) -> Flow:
        capacity_s = self.num_dedicated * self._limits.units_per_unit_s
        return flow(
            rate_s * self._limits.base_candidates,
            units_per_item=float(self._limits.base_candidates),
            route=Route(capacity_s=capacity_s, num_units=self.num_dedicated, allowed_ms=math.inf),
            times=self._times,
        )

    def _late(self, base: Flow) -> float:
        slack_ms = self._deadline_ms - base.service_ms - self._times.hops_p99_ms
        if slack_ms <= 0.0:
            return 1.0
        return base.wait_probability * math.exp(-slack_ms / base.wait_ms) if base.wait_ms > 0.0 else 0.0


def _num_dedicated(scenario: Scenario, play: CellPlay) -> int:
    """Dedicated replicas: those of the scenario, and more where its highest rate needs them."""
    most_s = float(play.schedule.rates_K.max()) * play.limits.base_candidates
    needed = most_s / (scenario.twin.base_load or 1.0) / play.limits.units_per_unit_s
    return max(scenario.processes.dedicated_rankers, math.ceil(needed))
