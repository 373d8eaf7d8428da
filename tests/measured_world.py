"""A small world whose truth is known, told as windows of results and outcomes: what measurement is proved on.

Users come again, in arms for good, each with a liking of their own; what a click is worth has a heavy tail; outcomes
arrive late; what optional work there is room for goes to the requests that are worth the most. So what is delivered is
not random, and only what was drawn can be compared. Traffic, its worth and the mix of segments drift.

Shape legend: N requests of one tick, B buckets of users, G segments, S strata, K columns.
"""

from collections.abc import Mapping, Sequence
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
from schemas.records.measurement import ARMS, ArmName, DrawnDepth, DrawnUpgrade

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
Flags = NDArray[np.bool_]


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
    arrive after their request, within the attribution window of ``attribution`` ticks; ``lag`` holds all of them up.
    ``cohorts_per_tick`` makes time pass: sums decay by cohorts.
    """

    num_requests: int = 20_000
    num_users: int = 20_000
    room: float = 1.0
    max_delay: int = 2
    attribution: int = 3
    lag: int = 0
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


_RMA: Final = (ARMS.index("rma"), ARMS.index("both"))
_SBM: Final = (ARMS.index("sbm"), ARMS.index("both"))
_ARMS_OF: Final = [
    Arm(name=name, allows_rma=name in ("rma", "both"), allows_sbm=name in ("sbm", "both")) for name in ARMS
]


class Truth(NamedTuple):
    """What is true of the requests of one segment, summed up: their number, and what each contrast really comes to."""

    num: float
    upgrade: float
    sbm: float
    rma: float
    depth: float


class Tick(NamedTuple):
    """Windows of one tick, who asked, the truth by segment, and the sums of what was delivered: (number, value) of the
    upgraded requests and of those not upgraded, by segment."""

    window_index: int
    end_ms: int
    windows: tuple[ControlWindow, ...]
    traffic: tuple[SegmentTraffic, ...]
    truth: dict[str, Truth]
    delivered: dict[str, tuple[float, float, float, float]]


class _Drawn(NamedTuple):
    """Requests of one tick: who asks, what was drawn, and what was served. ``would`` be served, had it been drawn."""

    segment_N: Ints
    liking_N: Floats
    bucket_N: Ints
    arm_N: Ints
    depth_N: Ints
    depth_weight_N: Floats
    upgrade_N: Ints
    upgrade_weight_N: Floats
    is_assigned_N: Flags
    would_upgrade_N: Flags
    would_widen_N: Flags

    @property
    def key_N(self) -> Ints:
        return ((self.segment_N * len(ARMS) + self.arm_N) * len(DEPTHS) + self.depth_N) * len(UPGRADES) + self.upgrade_N


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
        self._per_segment = self.settings.num_users // len(self.segments)
        num_users = self._per_segment * len(self.segments)
        self._liking_U = self._rng.lognormal(0.0, self.settings.liking_spread, num_users)
        # How often each user asks; over the requests of a segment the liking is 1 in the mean, so that truth is known.
        asks_R = np.diff(np.sqrt(np.arange(self._per_segment + 1) / self._per_segment))
        for at in range(len(self.segments)):
            own = slice(at, None, len(self.segments))
            self._liking_U[own] /= self._liking_U[own] @ asks_R
        self._bucket_U = self._rng.integers(NUM_BUCKETS, size=num_users)
        propensities = [arm_propensity(arm, settings=self.settings.arms) for arm in _ARMS_OF]
        self._arm_U = self._rng.choice(len(ARMS), size=num_users, p=propensities)
        self._arm_weight_A = np.array([MICRO * MICRO / in_millionths(p) for p in propensities])

    def tick(self, shares: Mapping[str, float]) -> Tick:
        """One tick; ``shares`` are probabilities of an upgrade by segment."""
        settings = self.settings
        index, start_ms = self._tick, (self._tick + 1) * settings.tick_ms
        self._tick += 1
        cohort = start_ms // settings.cohort_ms
        share_G = np.array([shares.get(each.name, 0.0) for each in self.segments])
        drawn = self._drawn(share_G)
        is_upgraded_N = drawn.is_assigned_N & drawn.would_upgrade_N
        extras_N = np.array(EXTRAS)[drawn.depth_N]
        ranked_N = np.where(drawn.would_widen_N, extras_N, 0)
        counted_NK = np.stack(
            [
                np.ones(len(extras_N)),
                self._arm_weight_A[drawn.arm_N],
                drawn.depth_weight_N,
                drawn.upgrade_weight_N,
                extras_N,
                ranked_N,
                drawn.is_assigned_N,
                is_upgraded_N,
            ],
            axis=1,
        ).astype(np.float64)
        rate_N = self._of("click_rate", drawn) * drawn.liking_N
        gain_N = self._of("upgrade", drawn) * is_upgraded_N + self._of("extras", drawn) * np.sqrt(ranked_N / EXTRAS[3])
        clicks_N = self._rng.poisson(rate_N * (1.0 + gain_N))
        tail = settings.tail
        value_N = clicks_N * self._of("worth", drawn) * self._rng.lognormal(-0.5 * tail * tail, tail, len(rate_N))
        self._send(drawn, clicks_N, value_N, index=index, cohort=cohort)
        end_ms = start_ms + settings.tick_ms
        results = ResultsWindow(
            strata=_strata(drawn.key_N, drawn.bucket_N, counted_NK, cohort=cohort, segments=self.segments),
            guards=self._guards(drawn),
            versions=[
                VersionTally(route="baseline", model_version=settings.baseline, num_results=len(rate_N)),
                VersionTally(route="powerful", model_version=self.powerful, num_results=int(is_upgraded_N.sum())),
            ],
            num_results=len(rate_N),
            num_duplicates=0,
            num_late=0,
            cohort_ms=settings.cohort_ms,
        )
        windows = [self._window("results", start_ms, results=results)]
        outcomes = self._outcomes(index)
        if outcomes is not None:
            windows.append(self._window("outcomes", start_ms, outcomes=outcomes))
        return Tick(
            window_index=start_ms // settings.tick_ms,
            end_ms=end_ms,
            windows=tuple(windows),
            traffic=self._traffic(drawn),
            truth=self._truth(drawn, share_G),
            delivered=self._delivered(drawn, is_upgraded_N, value_N),
        )

    @property
    def powerful(self) -> str:
        """Version of the stronger model."""
        return self.settings.powerful

    def _of(self, name: str, drawn: _Drawn) -> Floats:
        """One property of each request's segment."""
        figures_N: Floats = np.array([getattr(each, name) for each in self.segments])[drawn.segment_N]
        return figures_N

    def _drawn(self, share_G: Floats) -> _Drawn:
        segment_N, user_N = self._who_asks()
        arm_N, liking_N = self._arm_U[user_N], self._liking_U[user_N]
        depth_N, depth_weight_N = self._depths(arm_N)
        upgrade_N, is_assigned_N, upgrade_weight_N = self._upgrades(arm_N, share_G[segment_N])
        # What a router expects of a request: its worth, as far as it is known, and not what a lever adds to it.
        expected_N = np.array([each.absolute for each in self.segments])[segment_N] * liking_N
        return _Drawn(
            segment_N=segment_N,
            liking_N=liking_N,
            bucket_N=self._bucket_U[user_N],
            arm_N=arm_N,
            depth_N=depth_N,
            depth_weight_N=depth_weight_N,
            upgrade_N=upgrade_N,
            upgrade_weight_N=upgrade_weight_N,
            is_assigned_N=is_assigned_N,
            would_upgrade_N=self._there_is_room(is_assigned_N, expected_N),
            would_widen_N=self._there_is_room(depth_N > 1, expected_N),
        )

    def _who_asks(self) -> tuple[Ints, Ints]:
        """Segment and user of each request; some users ask far more often than others."""
        settings, rng = self.settings, self._rng
        phase = 2.0 * np.pi * self._tick / 24.0
        places_G = np.arange(len(self.segments))
        swing_G = 1.0 + settings.drift * np.sin(phase + 2.0 * np.pi * places_G / len(places_G))
        weight_G = np.array([each.weight for each in self.segments]) * swing_G
        num = rng.poisson(settings.num_requests * (1.0 + settings.drift * np.sin(phase)))
        segment_N = rng.choice(len(places_G), size=num, p=weight_G / weight_G.sum())
        rank_N = (self._per_segment * rng.random(num) ** 2).astype(np.int64)
        return segment_N, rank_N * len(places_G) + segment_N

    def _depths(self, arm_N: Ints) -> tuple[Ints, Floats]:
        is_allowed_N = np.isin(arm_N, _RMA)
        drawn_N = self._rng.random(len(arm_N))
        depth_N = np.where(drawn_N < EXPLORED / 2, 1, np.where(drawn_N < EXPLORED, 2, 3))
        chance_N = np.where(depth_N == 3, 1.0 - EXPLORED, EXPLORED / 2)
        return np.where(is_allowed_N, depth_N, 0), np.where(is_allowed_N, MICRO / chance_N, 0.0)

    def _upgrades(self, arm_N: Ints, share_N: Floats) -> tuple[Ints, Flags, Floats]:
        is_allowed_N = np.isin(arm_N, _SBM) & (share_N > 0.0)
        is_assigned_N: Flags = is_allowed_N & (self._rng.random(len(arm_N)) < share_N)
        is_drawn_N = is_allowed_N & (share_N < 1.0)
        chance_N = np.where(is_assigned_N, share_N, 1.0 - share_N)
        weight_N = np.divide(MICRO, chance_N, out=np.zeros(len(arm_N)), where=is_drawn_N)
        return np.where(is_drawn_N, 1 + is_assigned_N, 0), is_assigned_N, weight_N

    def _there_is_room(self, is_assigned_N: Flags, expected_N: Floats) -> Flags:
        """Whether a request's optional work is served, if any is assigned: that of the highest expected value is."""
        if self.settings.room >= 1.0 or not is_assigned_N.any():
            return np.ones(len(is_assigned_N), dtype=np.bool_)
        seen_N = expected_N * self._rng.lognormal(0.0, 0.3, len(expected_N))
        would_N: Flags = seen_N >= np.quantile(seen_N[is_assigned_N], 1.0 - self.settings.room)
        return would_N

    def _send(self, drawn: _Drawn, clicks_N: Ints, value_N: Floats, *, index: int, cohort: int) -> None:
        """Outcomes of a tick on their way, to arrive within ``max_delay`` ticks of it: most soon, some very late."""
        settings = self.settings
        at_N = np.flatnonzero(clicks_N)
        delay_N = np.minimum(settings.max_delay, self._rng.lognormal(0.0, 1.0, len(at_N)).astype(np.int64))
        value_micro_N = np.rint(value_N[at_N] * MICRO)
        measures_N5 = np.stack(
            [
                np.zeros(len(at_N)),
                clicks_N[at_N],
                np.zeros(len(at_N)),
                value_micro_N,
                np.minimum(value_micro_N, VALUE_CAP_MICRO),
            ],
            axis=1,
        )
        # Plain; then times the weights in millionths, counts too, of what was drawn.
        scales_5 = np.array([1.0, 1.0, 1.0, 1.0 / MICRO, 1.0 / MICRO])
        numbers_NK = np.concatenate(
            [
                measures_N5,
                *(
                    np.rint(measures_N5 * scales_5 * weight_N[at_N, None])
                    for weight_N in (drawn.depth_weight_N, drawn.upgrade_weight_N)
                ),
            ],
            axis=1,
        )
        key_N, bucket_N = drawn.key_N[at_N], drawn.bucket_N[at_N]
        for delay in range(settings.max_delay + 1):
            is_due_N = delay_N == delay
            self._arriving.setdefault(index + settings.lag + delay, []).append(
                _Arrivals(key_N[is_due_N], bucket_N[is_due_N], cohort, numbers_NK[is_due_N])
            )

    def _outcomes(self, index: int) -> OutcomesWindow | None:
        """What arrives within a tick; None where that is nothing."""
        arrived = self._arriving.pop(index, [])
        num_outcomes = sum(len(each.key_N) for each in arrived)
        if not num_outcomes:
            return None
        settings = self.settings
        return OutcomesWindow(
            strata=[
                stratum
                for each in arrived
                for stratum in _strata(
                    each.key_N, each.bucket_N, each.numbers_NK, cohort=each.cohort, segments=self.segments
                )
            ],
            num_outcomes=num_outcomes,
            num_duplicates=0,
            num_late=0,
            num_expired=0,
            cohort_ms=settings.cohort_ms,
            attribution_ms=settings.attribution * settings.tick_ms,
            value_cap_micro=VALUE_CAP_MICRO,
        )

    def _window(self, kind: Any, start_ms: int, **body: Any) -> ControlWindow:
        tick_ms = self.settings.tick_ms
        return ControlWindow(
            cell=CELL,
            kind=kind,
            source_partition=0,
            window_index=start_ms // tick_ms,
            start_ms=start_ms,
            end_ms=start_ms + tick_ms,
            **body,
        )

    def _guards(self, drawn: _Drawn) -> list[ArmGuard]:
        """What requests met: nothing but their number, at a latency that is the same for all."""
        return [
            guard_of(each.name, arm, num_requests=num)
            for at, each in enumerate(self.segments)
            for place, arm in enumerate(ARMS)
            if (num := int(((drawn.segment_N == at) & (drawn.arm_N == place)).sum()))
        ]

    def _traffic(self, drawn: _Drawn) -> tuple[SegmentTraffic, ...]:
        is_allowed_N = np.isin(drawn.arm_N, _SBM)
        return tuple(
            SegmentTraffic(
                segment=each.name,
                num_requests=int((drawn.segment_N == at).sum()),
                num_allowed=int(((drawn.segment_N == at) & is_allowed_N).sum()),
            )
            for at, each in enumerate(self.segments)
        )

    def _truth(self, drawn: _Drawn, share_G: Floats) -> dict[str, Truth]:
        """What each contrast really comes to among all requests, by what would be served of each."""
        base_N = self._of("absolute", drawn) * drawn.liking_N
        upgrade_N = base_N * self._of("upgrade", drawn) * drawn.would_upgrade_N
        depth_N = base_N * self._of("extras", drawn) * drawn.would_widen_N
        mean_depth = 1.0 - EXPLORED + EXPLORED / 2 * np.sqrt(0.5)
        figures_N5 = np.stack(
            [
                np.ones(len(base_N)),
                upgrade_N,
                upgrade_N * share_G[drawn.segment_N],
                depth_N * mean_depth,
                depth_N,
            ],
            axis=1,
        )
        found = {
            each.name: Truth(*figures_N5[drawn.segment_N == at].sum(axis=0)) for at, each in enumerate(self.segments)
        }
        return found | {"(all)": Truth(*figures_N5.sum(axis=0))}

    def _delivered(
        self, drawn: _Drawn, is_upgraded_N: Flags, value_N: Floats
    ) -> dict[str, tuple[float, float, float, float]]:
        is_allowed_N = np.isin(drawn.arm_N, _SBM)
        found = {}
        for name, is_own_N in [
            ("(all)", is_allowed_N),
            *((each.name, is_allowed_N & (drawn.segment_N == at)) for at, each in enumerate(self.segments)),
        ]:
            served_N, other_N = value_N[is_own_N & is_upgraded_N], value_N[is_own_N & ~is_upgraded_N]
            found[name] = (float(len(served_N)), served_N.sum(), float(len(other_N)), other_N.sum())
        return found


def guard_of(segment: str, arm: ArmName, *, num_requests: int, latency_ms: float = 10.0, **counts: int) -> ArmGuard:
    """What requests of a segment and arm met, all with the same latency."""
    one = ExponentialHistogram()
    one.record(latency_ms)
    fields = one.to_fields()
    # So many of the same, without counting them one by one.
    fields["counts"] = np.full(1, num_requests, dtype="<i8").tobytes()
    fields["count"], fields["sum_micro"] = num_requests, num_requests * fields["sum_micro"]
    zero = {name: 0 for name in ArmGuard.__struct_fields__ if name.startswith(("num_", "value_"))}
    return ArmGuard(
        segment=segment,
        arm=arm,
        latency=HistogramFields(**fields),
        **(zero | {"num_requests": num_requests} | counts),
    )


def _strata(
    key_N: Ints, bucket_N: Ints, numbers_NK: Floats, *, cohort: int, segments: Sequence[Segment]
) -> list[StratumSums]:
    """Sums by stratum and bucket of users, as ingest makes them."""
    keys_S, at_N = np.unique(key_N, return_inverse=True)
    cell_N = at_N * NUM_BUCKETS + bucket_N
    size = len(keys_S) * NUM_BUCKETS
    num_SB = np.bincount(cell_N, minlength=size).reshape(-1, NUM_BUCKETS)
    sums_SBK = np.stack(
        [np.bincount(cell_N, weights=column_N, minlength=size) for column_N in numbers_NK.T], axis=1
    ).reshape(-1, NUM_BUCKETS, numbers_NK.shape[1])
    found = []
    for key, num_B, sums_BK in zip(keys_S.tolist(), num_SB, np.rint(sums_SBK).astype(np.int64), strict=True):
        rest, upgrade = divmod(key, len(UPGRADES))
        rest, depth = divmod(rest, len(DEPTHS))
        segment, arm = divmod(rest, len(ARMS))
        buckets = np.flatnonzero(num_B)
        found.append(
            StratumSums(
                segment=segments[segment].name,
                arm=ARMS[arm],
                depth=DEPTHS[depth],
                upgrade=UPGRADES[upgrade],
                cohort=cohort,
                is_aa=False,
                buckets=buckets.tolist(),
                sums=sums_BK[buckets].ravel().tolist(),
            )
        )
    return found
