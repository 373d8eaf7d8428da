"""One cell through a scenario: supply, serving and controller, window by window, on a fake clock.

A window is cut wherever something changes: a host comes or goes, the last word of the controller arrives. Between two
cuts everything is constant. The order within a window:

1. what happens is played in order of time; each cut adds what was served since the one before;
2. at the window's end its two records are closed, as ingest closes them;
3. the controller takes them in; what it says acts when the next window is as old as the allowed lateness and one
   interval of the reporters: ingest closes a window with the first record that is later than that.

What happens at the very end of a window belongs to the next one.

Shape legend: S segments.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.twin.candidates import Candidates
from ops.twin.closing import Closing, InForce
from ops.twin.controllers import Controller, Word
from ops.twin.grants import PoolGrants, fits_of
from ops.twin.metrics import CellRun, Tick
from ops.twin.moment import Ability, Demand, Moment, Serving
from ops.twin.play import CellPlay
from ops.twin.service import ServiceTimes
from ops.twin.sums import Sums
from ops.twin.supply import Change, Supply
from ops.twin.value import ValueTable
from ops.twin.windows import capacity_window, latency_window
from schemas.records import CandidateTarget
from schemas.records.fields import Lever

# The fake clock begins here (2027-01-01), at a whole number of any window.
START_MS: Final = 1_798_761_600_000
_RMA: Final[Lever] = "rma"
_SBM: Final[Lever] = "sbm"


class CellTwin:
    """Plays one cell under one controller. ``table`` is the truth of what ranking earns."""

    def __init__(
        self, play: CellPlay, controller: Controller, table: ValueTable, *, times: ServiceTimes | None = None
    ) -> None:
        self._play = play
        self._controller = controller
        self._segments = table.segments
        self._first_index = START_MS // play.scenario.time.window_ms
        self._serving = Serving(play, times=times or ServiceTimes())
        self._supply = Supply(play.hosts, play.events)
        self._candidates = Candidates(play.scenario.requests, base_candidates=play.limits.base_candidates)
        self._closing = Closing(play, table, serving=self._serving)
        fits = fits_of(play.limits, self._supply.accelerators)
        self._grants = [
            PoolGrants({lever: fit[pool] for lever, fit in fits.items() if pool in fit}, usable=usable.units)
            for pool, usable in enumerate(self._supply.usable())
        ]
        if not play.limits.levers:
            for grants in self._grants:
                grants.split({_RMA: 1.0}, 0.0)
        self._target: CandidateTarget | None = None
        self._word: Word | None = None
        self._mixes = [
            (mix.at_s + play.scenario.warm_up_s, np.array([dict(mix.shares)[name] for name in table.segments]))
            for mix in play.scenario.twin.mixes
        ]
        self._mix_S = table.shares_S

    def run(self) -> CellRun:
        """All windows in order."""
        num_windows = self._play.schedule.num_windows
        return CellRun(cell=self._play.name, ticks=[self.window(index) for index in range(num_windows)])

    def window(self, index: int) -> Tick:
        """The window that is next."""
        play = self._play
        start_s, end_s = index * play.window_s, (index + 1) * play.window_s
        while self._mixes and self._mixes[0][0] <= start_s:
            self._mix_S = self._mixes.pop(0)[1]
        num_requests = int(play.schedule.nums_K[index])
        sums = self._played(index, start_s, end_s, rate_s=num_requests / play.window_s)  # 1
        target = self._valid_target(end_s)
        in_force = InForce(target=target, probability_S=self._probabilities(target), mix_S=self._mix_S)
        pools = self._supply.pool_windows(end_s)
        closed = self._closing.close(index, num_requests, sums, in_force, grants=self._grants)  # 2
        number, window_ms = self._first_index + index, play.scenario.time.window_ms
        word = self._controller.close(  # 3
            capacity_window(play.name, number, window_ms=window_ms, limits=play.limits, pools=pools),
            latency_window(play.name, number, window_ms=window_ms, measured=closed.measured),
        )
        self._word = word or self._word
        return self._closing.tick(closed, sums, in_force, pools=pools, grants=self._grants)

    def _played(self, index: int, start_s: float, end_s: float, *, rate_s: float) -> Sums:
        sums = Sums.empty(self._serving.scale.NUM_BUCKETS)
        speed = float(self._play.schedule.speed_K[index])
        time = self._play.scenario.time
        acts_s = min(end_s, start_s + (time.lateness_ms + time.interval_ms) / 1_000.0)
        now_s = start_s
        while now_s < end_s:
            until_s = min(end_s, self._supply.next_at_s())
            if self._word is not None:
                until_s = min(until_s, acts_s)
            until_s = max(now_s, until_s)
            moment = self._moment(now_s, rate_s=rate_s, speed=speed)
            sums.add(moment, until_s - now_s, rate_s=rate_s)
            sums.usable_unit_s += sum(grants.usable for grants in self._grants) * (until_s - now_s)
            if until_s < end_s:
                for change in self._supply.play(until_s):
                    self._change(change, moment, sums)
            if self._word is not None and until_s >= acts_s:
                self._obey(self._word, until_s)
                self._word = None
            now_s = until_s
        return sums

    def _moment(self, now_s: float, *, rate_s: float, speed: float) -> Moment:
        target = self._valid_target(now_s)
        extras = 0.0 if target is None else self._candidates.mean_extras(target.candidate_target)
        upgrades = float(self._mix_S @ self._probabilities(target))
        return self._serving.moment(Demand(rate_s, extras, upgrades), self._ability(now_s, speed=speed))

    def _ability(self, now_s: float, *, speed: float) -> Ability:
        wide_s = wide_units = powerful_s = powerful_units = 0.0
        for grants, usable in zip(self._grants, self._supply.usable(), strict=True):
            grants.mature(now_s)
            working = grants.working(cores=usable.cpu_cores, memory_bytes=usable.memory_bytes)
            for lever, units in working.items():
                if lever == _RMA:
                    wide_units += units
                    wide_s += units * grants.fits[lever].units_per_unit_s * speed
                elif lever == _SBM:
                    powerful_units += units
                    powerful_s += units * grants.fits[lever].units_per_unit_s * speed
        return Ability(wide_s, wide_units, powerful_s, powerful_units)

    def _change(self, change: Change, moment: Moment, sums: Sums) -> None:
        """Units come or go; what is in flight on units that go is shed there and then."""
        grants = self._grants[change.pool]
        if change.units < 0.0 and grants.usable > 0.0:
            gone = min(1.0, -change.units / grants.usable)
            for lever, flow, work in ((_RMA, moment.wide, sums.wide), (_SBM, moment.powerful, sums.powerful)):
                ready = sum(each.ready(lever) for each in self._grants)
                if ready > 0.0:
                    work.closed += flow.in_flight * gone * grants.ready(lever) / ready
        grants.change(change.units, change.at_s)

    def _obey(self, word: Word, now_s: float) -> None:
        self._target = word.target
        for grants, name in zip(self._grants, self._supply.accelerators, strict=True):
            split = word.splits.get(name)
            if split is not None:
                grants.split(split, now_s)

    def _valid_target(self, now_s: float) -> CandidateTarget | None:
        """The target in force; a target that ran out means base."""
        target = self._target
        return target if target is not None and START_MS + now_s * 1_000.0 < target.valid_until_ms else None

    def _probabilities(self, target: CandidateTarget | None) -> NDArray[np.float64]:
        """Probability with which a request of each segment is upgraded: float64 [S]."""
        if target is None or target.coverage <= 0.0:
            return np.zeros(len(self._segments))
        shares = {share.segment: share.share for share in target.segment_shares}
        return np.array([shares.get(name, target.other_share) for name in self._segments])
