"""A small world whose truth is known, told as windows of results and outcomes: what measurement and its loop are proved on.

Users come again, in arms for good, each with a liking of their own; what a click is worth has a heavy tail; outcomes
arrive late; what optional work there is room for goes to the requests that are worth the most. So what is delivered is
not random, and only what was drawn can be compared. Traffic, its worth and the mix of segments drift.

Shape legend: N requests of one tick, B buckets of users, G segments, S strata, K columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranking.router.arms import Arm, ArmSettings, arm_propensity
from schemas.buckets import NUM_BUCKETS
from schemas.drawn import in_millionths
from schemas.histogram import ExponentialHistogram
from schemas.records import (
    ArmGuard,
    ControlWindow,
    HistogramFields,
    OutcomesWindow,
    ResultsWindow,
    SegmentTraffic,
    StratumSums,
    VersionTally,
)
from schemas.records.measurement import ARMS, OUTCOME_SUMS, REQUEST_SUMS, ArmName, DrawnDepth, DrawnUpgrade

CELL: Final = "us-east"
MICRO: Final = 1_000_000
DEPTHS: Final[tuple[DrawnDepth, ...]] = ("", "none", "half", "full")
UPGRADES: Final[tuple[DrawnUpgrade, ...]] = ("", "no", "yes")
VALUE_CAP_MICRO: Final = 10 * MICRO
# Of all that a target asks for: none, half, full.
EXTRAS: Final = (0, 0, 100, 200)
EXPLORED: Final = 0.1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A segment's share of the requests, its worth, and by what share of it upgrades and all extras really add."""

    name: str
    weight: float
    worth: float
    upgrade: float
    extras: float = 0.1
    click_rate: float = 0.1

    @property
    def absolute(self) -> float:
        """Value of a request that gets base work alone."""
        return self.click_rate * self.worth

    @property
    def gain(self) -> float:
        """True gain of an upgrade."""
        return self.absolute * self.upgrade


@dataclass(frozen=True, kw_only=True)
class WorldSettings:
    """How the world is drawn; times in ticks. A tick's requests all fall into one cohort of intake.

    ``room`` is the share of the optional work assigned that there is room for. ``max_delay`` bounds when outcomes
    arrive after their request, within the attribution window of ``attribution`` ticks. ``cohorts_per_tick`` makes time
    pass: sums decay by cohorts.
    """

    num_requests: int = 20_000
    num_users: int = 20_000
    room: float = 1.0
    max_delay: int = 2
    attribution: int = 3
    cohort_ms: int = 60_000
    cohorts_per_tick: int = 1
    liking_spread: float = 0.7
    tail: float = 1.0
    drift: float = 0.3
    arms: ArmSettings = field(default_factory=lambda: ArmSettings(rma_share=0.8, sbm_share=0.8))
    baseline: str = "b-1"
    powerful: str = "p-1"

    @property
    def tick_ms(self) -> int:
        return self.cohorts_per_tick * self.cohort_ms


class Tick(NamedTuple):
    """Windows of one tick, who asked, and what a naive look at what was delivered would say of each segment."""

    index: int
    end_ms: int
    windows: tuple[ControlWindow, ...]
    traffic: tuple[SegmentTraffic, ...]
    delivered_sums_G4: Floats


class _Arrivals(NamedTuple):
    key_N: Ints
    bucket_N: Ints
    cohort: int
    numbers_NK: Floats


class MeasuredWorld:
    """Draws tick after tick; the same seed and the same shares give the same windows."""

    def __init__(self, segments: Sequence[Segment], *, seed: int, settings: WorldSettings | None = None) -> None:
        self.segments = list(segments)
        self.settings = settings or WorldSettings()
        self._rng = np.random.default_rng(seed)
        self._tick = 0
        self._arriving: dict[int, list[_Arrivals]] = {}
        rng, num_users = self._rng, self.settings.num_users
        spread = self.settings.liking_spread
        # Mean 1, so that truth is that of the segment.
        self._liking_U = rng.lognormal(-0.5 * spread * spread, spread, num_users)
        self._bucket_U = rng.integers(NUM_BUCKETS, size=num_users)
        propensities = [arm_propensity(arm, settings=self.settings.arms) for arm in _ARMS_OF]
        self._arm_U = rng.choice(len(ARMS), size=num_users, p=propensities)
        self._arm_weight_A = np.array([MICRO * MICRO / in_millionths(p) for p in propensities])

    def ticks(self, num: int, shares: Mapping[str, float], *, first_upgrade_worth: bool = True) -> Iterator[Tick]:
        """Some ticks at the same shares of upgrades by segment."""
        for _ in range(num):
            yield self.tick(shares)

    def tick(self, shares: Mapping[str, float]) -> Tick:
        """One tick; ``shares`` are probabilities of an upgrade by segment."""
        settings, rng = self.settings, self._rng
        index, start_ms = self._tick, (self._tick + 1) * settings.tick_ms
        self._tick += 1
        cohort = start_ms // settings.cohort_ms
        segment_N, user_N = self._who_asks()
        arm_N, liking_N = self._arm_U[user_N], self._liking_U[user_N]
        bucket_N = self._bucket_U[user_N]
        depth_N, depth_weight_N = self._depths(arm_N)
        share_G = np.array([shares.get(each.name, 0.0) for each in self.segments])
        upgrade_N, is_assigned_N, upgrade_weight_N = self._upgrades(arm_N, share_G[segment_N])
        # What a router expects of a request: its worth, as far as it is known, and not what the lever adds to it.
        worth_G = np.array([each.absolute for each in self.segments])
        expected_N = worth_G[segment_N] * liking_N
        is_upgraded_N = self._served(is_assigned_N, expected_N)
        extras_N = np.array(EXTRAS)[depth_N]
        ranked_N = np.where(self._served(extras_N > 0, expected_N), extras_N, 0)
        key_N = ((segment_N * len(ARMS) + arm_N) * len(DEPTHS) + depth_N) * len(UPGRADES) + upgrade_N
        requests_NK = np.stack(
            [
                np.ones(len(key_N)),
                self._arm_weight_A[arm_N],
                depth_weight_N,
                upgrade_weight_N,
                extras_N.astype(float),
                ranked_N.astype(float),
                is_assigned_N.astype(float),
                is_upgraded_N.astype(float),
            ],
            axis=1,
        )
        values_N = self._values(segment_N, liking_N, is_upgraded_N, ranked_N)
        self._send_outcomes(values_N, key_N, bucket_N, (depth_weight_N, upgrade_weight_N), index=index, cohort=cohort)
        end_ms = start_ms + settings.tick_ms
        results = ResultsWindow(
            strata=list(_strata(key_N, bucket_N, requests_NK, cohort, self.segments)),
            guards=list(self._guards(segment_N, arm_N)),
            versions=[
                VersionTally(route="baseline", model_version=settings.baseline, num_results=len(key_N)),
                VersionTally(route="powerful", model_version=settings.powerful, num_results=max(1, is_upgraded_N.sum())),
            ],
            num_results=len(key_N),
            num_duplicates=0,
            num_late=0,
            cohort_ms=settings.cohort_ms,
        )
        windows = [self._window("results", start_ms, end_ms, results=results)]
        outcomes = self._outcomes(index)
        if outcomes is not None:
            windows.append(self._window("outcomes", start_ms, end_ms, outcomes=outcomes))
        naive_G4 = _by_delivery(segment_N, np.isin(arm_N, _SBM), is_upgraded_N, values_N, num=len(self.segments))
        allowed_N = np.isin(arm_N, _SBM)
        traffic = tuple(
            SegmentTraffic(
                segment=each.name,
                num_requests=int((segment_N == at).sum()),
                num_allowed=int(((segment_N == at) & allowed_N).sum()),
            )
            for at, each in enumerate(self.segments)
        )
        return Tick(start_ms // settings.tick_ms, end_ms, tuple(windows), traffic, naive_G4)

    def _who_asks(self) -> tuple[Ints, Ints]:
        """Segment and user of each request. A user belongs to one segment, and some ask far more than others."""
        settings, rng = self.settings, self._rng
        phase = 2.0 * np.pi * self._tick / 24.0
        places = np.arange(len(self.segments))
        weights = np.array([each.weight for each in self.segments]) * (
            1.0 + settings.drift * np.sin(phase + 2.0 * np.pi * places / len(places))
        )
        num = rng.poisson(settings.num_requests * (1.0 + settings.drift * np.sin(phase)))
        segment_N = rng.choice(len(places), size=num, p=weights / weights.sum())
        # Users of segment g are those whose number is g modulo the number of segments; the lower ones ask more often.
        per_segment = settings.num_users // len(places)
        rank_N = (per_segment * rng.random(num) ** 2.0).astype(np.int64)
        return segment_N, rank_N * len(places) + segment_N

    def _depths(self, arm_N: Ints) -> tuple[Ints, Floats]:
        is_allowed_N = np.isin(arm_N, _RMA)
        drawn_N = self._rng.random(len(arm_N))
        depth_N = np.where(drawn_N < EXPLORED / 2, 1, np.where(drawn_N < EXPLORED, 2, 3))
        chance_N = np.where(depth_N == 3, 1.0 - EXPLORED, EXPLORED / 2)
        return np.where(is_allowed_N, depth_N, 0), np.where(is_allowed_N, MICRO / chance_N, 0.0)

    def _upgrades(self, arm_N: Ints, share_N: Floats) -> tuple[Ints, NDArray[np.bool_], Floats]:
        is_allowed_N = np.isin(arm_N, _SBM) & (share_N > 0.0)
        is_assigned_N = is_allowed_N & (self._rng.random(len(arm_N)) < share_N)
        is_drawn_N = is_allowed_N & (share_N < 1.0)
        chance_N = np.where(is_assigned_N, share_N, 1.0 - share_N)
        weight_N = np.divide(MICRO, chance_N, out=np.zeros(len(arm_N)), where=is_drawn_N)
        return np.where(is_drawn_N, 1 + is_assigned_N, 0), is_assigned_N, weight_N

    def _served(self, is_assigned_N: NDArray[np.bool_], expected_N: Floats) -> NDArray[np.bool_]:
        """What of the optional work there is room for: that of the highest expected value."""
        if self.settings.room >= 1.0 or not is_assigned_N.any():
            return is_assigned_N
        seen_N = expected_N * self._rng.lognormal(0.0, 0.3, len(expected_N))
        least = np.quantile(seen_N[is_assigned_N], 1.0 - self.settings.room)
        served_N: NDArray[np.bool_] = is_assigned_N & (seen_N >= least)
        return served_N

    def _values(
        self, segment_N: Ints, liking_N: Floats, is_upgraded_N: NDArray[np.bool_], ranked_N: Ints
    ) -> Floats:
        """Value of each request; 0 where nobody clicked."""
        rate_G, upgrade_G, extras_G, worth_G = (
            np.array([getattr(each, name) for each in self.segments])
            for name in ("click_rate", "upgrade", "extras", "worth")
        )
        # Half of all extras earns 70 % of what all do.
        wider_N = extras_G[segment_N] * np.sqrt(ranked_N / EXTRAS[3])
        added_N = upgrade_G[segment_N] * is_upgraded_N + wider_N
        clicked_N = self._rng.random(len(segment_N)) < rate_G[segment_N] * liking_N * (1.0 + added_N) / MAX_LIKING
        tail = self.settings.tail
        paid_N = self._rng.lognormal(-0.5 * tail * tail, tail, len(segment_N)) * worth_G[segment_N] * MAX_LIKING
        return np.where(clicked_N, paid_N, 0.0)
