"""The close of a window: what routers and replicas report of it, and what it was by the truth. Pure but for its noise.

Shape legend: S segments, B buckets of a latency histogram.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.twin.grants import PoolGrants
from ops.twin.metrics import Earned, LeverGrant, PoolTick, RouteTick, Tick
from ops.twin.moment import Serving
from ops.twin.play import CellPlay
from ops.twin.sums import Sums
from ops.twin.value import ValueTable, WindowValue
from ops.twin.windows import EMPTY, Measured, RouteFigures, account, drawn_histogram
from schemas.records import Account, CandidateTarget, HistogramFields, PoolWindow, SegmentTraffic

_MICRO = 1_000_000


@dataclass(frozen=True)
class InForce:
    """What ruled at the end of a window: the target, each segment's probability of an upgrade, and the mix."""

    target: CandidateTarget | None
    probability_S: NDArray[np.float64]
    mix_S: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Closed:
    """A window's report, and figures of it that no report carries."""

    end_s: float
    measured: Measured
    base_value_micro: int
    num_upgraded: int
    p99_ms: float | None
    upstream_p99_ms: float | None
    powerful_p99_ms: float | None


class Closing:
    """Closes the windows of one cell; what chance decides is drawn, or comes out as expected in a world without
    noise."""

    def __init__(self, play: CellPlay, table: ValueTable, *, serving: Serving) -> None:
        self._play = play
        self._table = table
        self._limits = play.limits
        self._serving = serving
        has_noise = play.scenario.twin.noise
        # Who asks does not depend on how it is answered.
        self._askers = play.rng(0) if has_noise else None
        self._noise = play.rng(1) if has_noise else None
        # An upgrade that costs nothing is still an item.
        self._per_upgrade = play.limits.units_per_upgrade or 1.0

    def close(
        self, index: int, num_requests: int, sums: Sums, in_force: InForce, *, grants: Sequence[PoolGrants]
    ) -> Closed:
        """What is reported of window ``index``."""
        nums_S = self._by_segment(num_requests, in_force.mix_S)
        routed_S = self._routed(nums_S, in_force.probability_S, sums)
        num_routed = int(routed_S.sum())
        extras = sums.wide.offered / num_requests if num_requests else 0.0
        powerful = sums.powerful
        # Of those that were sent, the share that was answered in time.
        answered = powerful.done_share / powerful.sent_share if powerful.sent_share > 0.0 else 0.0
        value = WindowValue(
            self._table,
            base_candidates=self._limits.base_candidates,
            nums_S=nums_S,
            upgraded_S=routed_S * answered,
        )
        weight = 1.0 / sums.served_s if sums.served_s > 0.0 else 0.0
        latency, p99_ms = self._histogram(sums.latency_B * weight, num_requests)
        routed, powerful_p99_ms = self._histogram(sums.powerful_B * weight, num_routed)
        upstream, upstream_p99_ms = self._upstream(index, num_requests, extras)
        return Closed(
            end_s=(index + 1) * self._play.window_s,
            measured=Measured(
                latency=latency,
                upstream=upstream,
                routes=self._routes(sums, num_requests, num_routed, routed, grants=grants),
                accounts=self._accounts(sums, value, extras=extras, num_routed=num_routed),
                segments=self._traffic(nums_S, in_force.probability_S, routed_S),
                num_routers=self._play.scenario.processes.routers,
                num_requests=num_requests,
                num_base_late=round(sums.base_late),
            ),
            base_value_micro=round(value.base * _MICRO),
            num_upgraded=num_routed,
            p99_ms=p99_ms,
            upstream_p99_ms=upstream_p99_ms,
            powerful_p99_ms=powerful_p99_ms,
        )

    def tick(
        self,
        closed: Closed,
        sums: Sums,
        in_force: InForce,
        *,
        pools: Sequence[PoolWindow],
        grants: Sequence[PoolGrants],
    ) -> Tick:
        """The record of a closed window."""
        measured, target = closed.measured, in_force.target
        wide_p99_ms = None
        if sums.wide.offered > sums.wide.held:
            wide_p99_ms = self._serving.scale.quantile(sums.wide_B / sums.served_s, 0.99)
        return Tick(
            cell=self._play.name,
            at_s=closed.end_s - self._play.scenario.warm_up_s,
            pools=_pool_ticks(pools, grants),
            candidate_target=self._limits.base_candidates if target is None else target.candidate_target,
            reason="none" if target is None else target.reason,
            coverage_target=0.0 if target is None else target.coverage,
            coverage_reason="" if target is None else target.coverage_reason,
            num_requests=measured.num_requests,
            num_upgraded=closed.num_upgraded,
            coverage=closed.num_upgraded / measured.num_requests if measured.num_requests else 0.0,
            latency_p99_ms=closed.p99_ms,
            upstream_p99_ms=closed.upstream_p99_ms,
            routes=[
                RouteTick(route="wide", p99_ms=wide_p99_ms, load=sums.wide.load_s / self._play.window_s),
                RouteTick(
                    route="powerful", p99_ms=closed.powerful_p99_ms, load=sums.powerful.load_s / self._play.window_s
                ),
            ],
            accounts=list(measured.accounts),
            num_base_late=measured.num_base_late,
            num_reclaims=sum(pool.num_reclaims for pool in pools),
            usable_unit_s=sums.usable_unit_s,
            busy_unit_s=sums.wide.unit_s + sums.powerful.unit_s,
            base_value_micro=closed.base_value_micro,
            earned=[Earned(lever=each.lever, value_micro=each.admitted_value_micro) for each in measured.accounts],
        )

    def _histogram(self, cumulative_B: NDArray[np.float64], num: int) -> tuple[HistogramFields, float | None]:
        return drawn_histogram(cumulative_B, num, scale=self._serving.scale, rng=self._noise)

    def _by_segment(self, num_requests: int, mix_S: NDArray[np.float64]) -> NDArray[np.int64]:
        if self._askers is not None:
            return self._askers.multinomial(num_requests, mix_S)
        ends_S = np.rint(np.cumsum(mix_S) * num_requests).astype(np.int64)
        nums_S: NDArray[np.int64] = np.diff(ends_S, prepend=0)
        return nums_S

    def _routed(self, nums_S: NDArray[np.int64], probability_S: NDArray[np.float64], sums: Sums) -> NDArray[np.int64]:
        """Requests of each segment that were sent to the powerful route: assigned, and not held back by pressure."""
        sent_S = np.clip(probability_S * sums.powerful.sent_share, 0.0, 1.0)
        if self._noise is not None:
            return self._noise.binomial(nums_S, sent_S)
        routed_S: NDArray[np.int64] = np.rint(nums_S * sent_S).astype(np.int64)
        return routed_S

    def _accounts(self, sums: Sums, value: WindowValue, *, extras: float, num_routed: int) -> list[Account]:
        accounts: list[Account] = []
        wide, powerful = sums.wide, sums.powerful
        if round(wide.offered) > 0:
            accounts.append(
                account(
                    "rma",
                    offered=round(wide.offered),
                    sheds=wide.sheds(units_per_item=1.0),
                    offered_value_micro=round(value.of_extras(extras) * _MICRO),
                    admitted_value_micro=round(value.of_extras(extras * wide.done_share) * _MICRO),
                )
            )
        sheds = powerful.sheds(units_per_item=self._per_upgrade)
        offered = max(num_routed + sheds["pressure"], sum(sheds.values()))
        if offered > 0:
            earned = value.of_upgrades
            share = powerful.done_share
            accounts.append(
                account(
                    "sbm",
                    offered=offered,
                    sheds=sheds,
                    offered_value_micro=round(earned / share * _MICRO) if share > 0.0 else 0,
                    admitted_value_micro=round(earned * _MICRO),
                )
            )
        return accounts

    def _upstream(self, index: int, num_requests: int, extras: float) -> tuple[HistogramFields | None, float | None]:
        upstream = self._play.scenario.twin.upstream
        if upstream.median_ms <= 0.0:
            return None, None
        span = max(1, self._limits.max_candidates - self._limits.base_candidates)
        factor = float(self._play.schedule.upstream_K[index]) * (1.0 + upstream.rise_share * extras / span)
        shape_B = self._serving.scale.log_logistic(
            median_ms=factor * upstream.median_ms, p99_ms=factor * upstream.p99_ms
        )
        return self._histogram(shape_B, num_requests)

    def _routes(
        self,
        sums: Sums,
        num_requests: int,
        num_routed: int,
        routed: HistogramFields,
        *,
        grants: Sequence[PoolGrants],
    ) -> list[RouteFigures]:
        limits, served_s = self._limits, sums.served_s or 1.0
        base_units = num_requests * limits.base_candidates
        return [
            RouteFigures(
                route="baseline",
                latency=EMPTY,
                num_reporters=self._serving.num_dedicated,
                num_work=num_requests,
                busy_s=base_units / limits.units_per_unit_s,
                units_done=base_units,
                pressure=0.0,
            ),
            RouteFigures(
                route="wide",
                latency=EMPTY,
                num_reporters=_num_replicas(sum(each.ready("rma") for each in grants)),
                num_work=num_requests if sums.wide.offered > sums.wide.held else 0,
                busy_s=sums.wide.unit_s,
                units_done=round(sums.wide.done),
                pressure=min(1.0, sums.wide.load_s / served_s),
            ),
            RouteFigures(
                route="powerful",
                latency=routed,
                num_reporters=_num_replicas(sum(each.ready("sbm") for each in grants)),
                num_work=num_routed,
                busy_s=sums.powerful.unit_s,
                units_done=round(sums.powerful.done),
                pressure=min(1.0, sums.powerful.load_s / served_s),
            ),
        ]

    def _traffic(
        self, nums_S: NDArray[np.int64], probability_S: NDArray[np.float64], routed_S: NDArray[np.int64]
    ) -> list[SegmentTraffic]:
        rows = zip(self._table.segments, nums_S.tolist(), probability_S.tolist(), routed_S.tolist(), strict=True)
        return [
            SegmentTraffic(
                segment=name,
                num_requests=num,
                num_allowed=num,
                probability_micro=round(probability * num * _MICRO),
                num_routed=routed,
            )
            for name, num, probability, routed in sorted(rows)
        ]


def _num_replicas(units: float) -> int:
    """One replica a unit; a part of a unit is one too."""
    return int(np.ceil(units - 1e-9))


def _pool_ticks(pools: Sequence[PoolWindow], grants: Sequence[PoolGrants]) -> list[PoolTick]:
    return [
        PoolTick(
            accelerator=pool.accelerator,
            idle_units=pool.units_micro / _MICRO,
            usable_units=each.usable,
            levers=[
                LeverGrant(lever=lever, units=each.held(lever), ready_units=each.ready(lever)) for lever in each.fits
            ],
        )
        for pool, each in zip(pools, grants, strict=True)
    ]
