"""Experiments on one cell of the twin: its own controller's position replaced by a script, all else as ``simulate``.

1. The scenario is played for a while under the controller of production, as it is: chance, reclaims and all. The split
   of the pools that comes of it stands from then on.
2. What is offered at the start stays, nothing is drawn by chance, and requests come at a constant rate.
3. For each position that is asked for, the rate is raised until the loop would come to rest there: p99 meets its
   setpoint, or the offered extras are what the budget pays for (``utilisation`` of the wide route). No upgrades: what
   else a result waits for would only hide how steeply the wide route answers.
4. There the position goes up and down by a few candidates, and the error is read as the controller would read it,
   with two differences. The setpoint is the p99 of the point itself: where the budget binds first, that is the loop of
   a cell whose limit is so tight that both bind at once, the steepest that any limit can bring about under this
   budget. And p99 is read between the edges of its bucket, which are 4 % apart.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ops.tune.identify import Wave, step_response_J
from ops.twin.cell import CellTwin
from ops.twin.controllers import Production, Split, Word
from ops.twin.play import CellPlay
from ops.twin.value import ValueTable
from schemas.records import CandidateTarget, CellLimits, ControlWindow, HistogramFields
from streams.control.error import latency_error
from streams.control.gains import DEFAULT_GAINS
from streams.control.settings import DEFAULT_SETTINGS

_Floats = NDArray[np.float64]
Bound = Literal["latency", "budget"]
_VERSION: Final = "tune"
# Until the grants of the first word have started up; a lever's start-up time is added.
_SETTLING_TICKS: Final = 4
# Of the scenario's own rate: a fine grid between two rates of the coarse one, and a finer one within that.
_FACTORS: Final = np.geomspace(1.0 / 16.0, 16.0, 29)
_NUM_FINE: Final = 13
_NUM_ROUNDS: Final = 2
_TICKS_PER_RATE: Final = 2
# The error that a wave is meant to swing by, up and down: enough buckets of p99, and still the slope at one point.
_WANTED_SWING: Final = 0.15
# Amplitudes as shares of the position.
_FIRST_SHARE: Final = 0.05
_MOST_SHARE: Final = 0.2
_NUDGES: Final = np.linspace(0.98, 1.02, 5)


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """Where the loop would rest: a position as a share of the span, the rate that makes it so, p99 and the wide route's
    load there, and which of the two binds."""

    position: float
    rate_per_s: float
    p99_ms: float
    load: float
    bound: Bound


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What waves around a point led to: the errors of one of them, and the step response from all."""

    point: OperatingPoint
    wave: Wave
    errors_K: _Floats
    response_J: _Floats


@dataclass(frozen=True)
class _Swept:
    """p99 and load of the wide route at each of some rates, at rest: float64 each."""

    p99s_ms: _Floats
    loads: _Floats


class Experiment:
    """One cell of a scenario, split as its controller split it."""

    def __init__(self, play: CellPlay, table: ValueTable, *, settle_ticks: int = 60) -> None:
        self._play = play
        self._limits = play.limits
        self._table = table
        self._splits = _splits_after(play, table, num_ticks=settle_ticks)
        startup_s = max((terms.startup_s for terms in play.limits.levers), default=0.0)
        self._settling = _SETTLING_TICKS + math.ceil(startup_s / play.window_s)

    @property
    def setpoint_ms(self) -> float:
        """p99 that the loop steers to."""
        return DEFAULT_GAINS.setpoint_share * self._limits.latency_limit_ms

    @property
    def span(self) -> int:
        """Extras that the limits allow."""
        return self._limits.max_candidates - self._limits.base_candidates

    def point_at(self, position: float, *, under_budget: bool = True) -> OperatingPoint | None:
        """The operating point of a position; None where no rate up to sixteen times the scenario's own leads there.

        Not ``under_budget``: where p99 meets the cell's own setpoint, whatever the budget would say.
        """
        rates = float(self._play.schedule.rates_K.max()) * _FACTORS
        swept = self._swept(rates, position)
        for _ in range(_NUM_ROUNDS):
            past = np.flatnonzero(self._is_past(swept, under_budget=under_budget))
            if not len(past) or past[0] == 0:
                return None
            rates = np.linspace(rates[past[0] - 1], rates[past[0]], _NUM_FINE)
            swept = self._swept(rates, position)
        last = max(1, int(np.argmax(self._is_past(swept, under_budget=under_budget)))) - 1
        return OperatingPoint(
            position=position,
            rate_per_s=float(rates[last]),
            p99_ms=float(swept.p99s_ms[last]),
            load=float(swept.loads[last]),
            bound="budget" if swept.p99s_ms[last + 1] < self.setpoint_ms else "latency",
        )

    def answer(self, point: OperatingPoint) -> Answer:
        """Waves around a point, wide enough to be told from the rounding of counts, and the mean of the answers.

        Each at a rate that is slightly its own, so that no rounding is the same twice.
        """
        wave = self._wave(_FIRST_SHARE * point.position, point)
        swing = _swing(wave, self._errors(wave, point))
        wanted = wave.amplitude * _WANTED_SWING / swing if swing > 0.0 else 1.0
        wave = self._wave(min(wanted, _MOST_SHARE * point.position), point)
        errors = [self._errors(wave, point, factor=float(factor)) for factor in _NUDGES]
        return Answer(
            point=point,
            wave=wave,
            errors_K=errors[len(errors) // 2],
            response_J=np.mean([step_response_J(wave, errors_K) for errors_K in errors], axis=0),
        )

    def _wave(self, amplitude: float, point: OperatingPoint) -> Wave:
        """Of whole candidates, as routers are told, and within the span."""
        extras = round(amplitude * self.span)
        most = math.floor((1.0 - point.position) * self.span)
        return Wave(level=point.position, amplitude=max(1, min(extras, most)) / self.span, num_periods=1)

    def _is_past(self, swept: "_Swept", *, under_budget: bool) -> NDArray[np.bool_]:
        is_late = swept.p99s_ms >= self.setpoint_ms
        return is_late | (swept.loads >= self._limits.utilisation) if under_budget else is_late

    def _swept(self, rates: _Floats, position: float) -> "_Swept":
        nums = np.repeat(rates * self._play.window_s, _TICKS_PER_RATE)
        script = _Script(self._limits, self._splits, lambda _tick: position)
        loads = self._played(script, np.append(np.full(self._settling, nums[0]), nums))
        at_rest = slice(self._settling + _TICKS_PER_RATE - 1, None, _TICKS_PER_RATE)
        return _Swept(np.array(script.p99s_ms)[at_rest], np.array(loads)[at_rest])

    def _errors(self, wave: Wave, point: OperatingPoint, *, factor: float = 1.0) -> _Floats:
        """Error at the end of each window of a wave, as if the limit were one that binds at the point."""
        positions_K = wave.positions_K()
        first = self._settling
        script = _Script(self._limits, self._splits, lambda tick: float(positions_K[max(0, tick - first)]))
        self._played(script, np.full(first + len(positions_K), factor * point.rate_per_s * self._play.window_s))
        return np.array([latency_error(p99_ms, setpoint_ms=point.p99_ms) for p99_ms in script.p99s_ms[first:]])

    def _played(self, script: "_Script", nums: _Floats) -> list[float]:
        """Play a script against that many requests in each window; load of the wide route in each."""
        play, scenario = self._play, self._play.scenario
        nums_K = np.maximum(1, np.rint(nums)).astype(np.int64)
        ones_K = np.ones(len(nums_K))
        schedule = replace(
            play.schedule, rates_K=nums_K / play.window_s, nums_K=nums_K, upstream_K=ones_K, speed_K=ones_K
        )
        quiet = replace(scenario, twin=replace(scenario.twin, noise=False, mixes=()))
        twin = CellTwin(replace(play, scenario=quiet, events=(), schedule=schedule), script, self._table)
        ticks = twin.run().ticks
        return [next(route.load for route in tick.routes if route.route == "wide") for tick in ticks]


class _Script:
    """Steers a cell by a script of positions, and notes the p99 of each window."""

    name = _VERSION

    def __init__(self, limits: CellLimits, splits: Mapping[str, Split], position_at: Callable[[int], float]) -> None:
        self._limits = limits
        self._splits = splits
        self._position_at = position_at
        self.p99s_ms: list[float] = []

    def close(self, capacity: ControlWindow, latency: ControlWindow) -> Word:
        """The script's word; ``capacity`` changes nothing."""
        assert latency.latency is not None
        tick = len(self.p99s_ms)
        self.p99s_ms.append(p99_ms(latency.latency.latency))
        limits = self._limits
        extras = round(self._position_at(tick) * (limits.max_candidates - limits.base_candidates))
        window_ms = latency.end_ms - latency.start_ms
        target = CandidateTarget(
            cell=latency.cell,
            window_index=latency.window_index,
            window_end_ms=latency.end_ms,
            valid_until_ms=latency.end_ms + DEFAULT_SETTINGS.validity_windows * window_ms,
            base_candidates=limits.base_candidates,
            max_candidates=limits.max_candidates,
            candidate_target=limits.base_candidates + extras,
            extra_budget_units_s=0.0,
            coverage=0.0,
            segment_shares=[],
            reason=_VERSION,
            detail="",
            manifest=[],
            latency_limit_ms=limits.latency_limit_ms,
            latency_p99_ms=None,
            request_rate_per_s=0.0,
            controller_version=_VERSION,
        )
        return Word(target=target, splits=self._splits)


def p99_ms(histogram: HistogramFields) -> float:
    """p99 of a histogram, geometric between the edges of its bucket."""
    counts_B = np.frombuffer(histogram.counts, dtype="<i8")
    ends_B = np.cumsum(counts_B)
    rank = 0.99 * histogram.count - histogram.zero_count
    bucket = int(np.searchsorted(ends_B, rank))
    share = 1.0 - (ends_B[bucket] - rank) / counts_B[bucket]
    return float(2.0 ** ((histogram.offset + bucket + share) * 2.0**-histogram.scale))


class _Overheard:
    """The controller of production, whose last word on each pool is kept."""

    name = Production.name

    def __init__(self, cell: str) -> None:
        self._controller = Production(cell)
        self.splits: dict[str, Split] = {}

    def close(self, capacity: ControlWindow, latency: ControlWindow) -> Word | None:
        word = self._controller.close(capacity, latency)
        if word is not None:
            self.splits.update(word.splits)
        return word


def _swing(wave: Wave, errors_K: _Floats) -> float:
    return float(np.ptp(errors_K[wave.half_ticks :])) / 2.0


def _splits_after(play: CellPlay, table: ValueTable, *, num_ticks: int) -> Mapping[str, Split]:
    overheard = _Overheard(play.name)
    twin = CellTwin(play, overheard, table)
    for index in range(min(num_ticks, play.schedule.num_windows)):
        twin.window(index)
    return overheard.splits
