"""A cell with two optional routes: a target and a split in, what routers and replicas would measure in one window out.

Each route is a queue: p99 = idle p99 / (1 - load), the tail of an M/M/1 queue, where load is the work that comes over
what its units do. What is done is told busy second by busy second, so that the controller can measure speeds.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.records import (
    Account,
    CandidateTarget,
    HistogramFields,
    LatencyWindow,
    PoolSnapshot,
    RouteWindow,
    SegmentTraffic,
    ShedUnits,
)
from schemas.records.fields import Lever
from tests.loop.plants import MAX_LOAD
from tests.unit.streams.control_makers import histogram


@dataclass(kw_only=True)
class Queue:
    """One route. ``speeds`` are work units per unit and second by accelerator, as they truly are."""

    lever: Lever
    speeds: Mapping[str, float]
    idle_p99_ms: float

    def capacity_per_s(self, pools: Mapping[str, PoolSnapshot]) -> float:
        """Work that the lever's units of today do in a second."""
        return sum(
            grant.units_micro / 1e6 * self.speeds.get(accelerator, 0.0)
            for accelerator, pool in pools.items()
            for grant in pool.levers
            if grant.lever == self.lever
        )

    def p99_ms(self, load: float) -> float:
        return self.idle_p99_ms / (1.0 - min(MAX_LOAD, load))


@dataclass(kw_only=True)
class TwoRoutes:
    """A cell whose requests come ``rate_per_s``, of segments by ``mix``; arms allow ``allowed_share`` of them upgrades.

    ``upgrade_units`` is what an upgrade truly costs. ``noise`` is the relative deviation of each p99 (log-normal), and
    makes who asks and who is upgraded a matter of dice. ``shed_share`` of the extras are dropped whatever the load.
    Upstream is a queue too, of ``upstream_bears_per_s`` extras.
    """

    wide: Queue = field(default_factory=lambda: Queue(lever="rma", speeds={"a100": 50_000.0}, idle_p99_ms=30.0))
    powerful: Queue = field(default_factory=lambda: Queue(lever="sbm", speeds={"a100": 40_000.0}, idle_p99_ms=60.0))
    rate_per_s: float = 100.0
    mix: Mapping[str, float] = field(default_factory=lambda: {"sports": 0.5, "travel": 0.3, "(none)": 0.2})
    allowed_share: Mapping[str, float] = field(default_factory=dict)
    upgrade_units: float = 400.0
    upstream_p99_ms: float | None = None
    upstream_bears_per_s: float = math.inf
    shed_share: float = 0.0
    noise: float = 0.0
    dice: random.Random = field(default_factory=lambda: random.Random(23))
    owed: dict[str, float] = field(default_factory=dict)

    def respond(
        self, target: CandidateTarget | None, pools: Mapping[str, PoolSnapshot], *, window_s: float
    ) -> LatencyWindow:
        """What is seen in the window after that target and that split."""
        num_requests = round(self.rate_per_s * window_s)
        extras = target.candidate_target - target.base_candidates if target is not None else 0
        segments = [self._traffic(segment, num_requests, target) for segment in sorted(self.mix)]
        num_routed = sum(traffic.num_routed for traffic in segments)
        wide_p99_ms, wide = self._route(self.wide, extras * num_requests, pools, window_s, num_answered=num_requests)
        _, powerful = self._route(
            self.powerful, round(num_routed * self.upgrade_units), pools, window_s, num_answered=num_routed
        )
        offered = extras * num_requests
        accounts = [_account("rma", offered, dropped=round(self.shed_share * offered))]
        if num_routed:
            accounts.append(_account("sbm", num_routed, dropped=0))
        upstream_ms = self.upstream_p99_ms
        if upstream_ms is not None:
            upstream_ms /= 1.0 - min(MAX_LOAD, offered / window_s / self.upstream_bears_per_s)
        return LatencyWindow(
            latency=alike(wide_p99_ms, num_requests),
            routes=[*wide, *powerful],
            accounts=accounts,
            num_routers=1,
            num_rankers=2,
            num_requests=num_requests,
            num_results=num_requests,
            num_base_late=0,
            num_errors=0,
            num_intervals=4,
            num_duplicates=0,
            num_late=0,
            upstream=alike(upstream_ms, num_requests) if upstream_ms is not None else None,
            segments=segments,
        )

    def _traffic(self, segment: str, num_requests: int, target: CandidateTarget | None) -> SegmentTraffic:
        """Requests of one segment, by dice where there is noise; else what is left over from rounding is owed."""
        asking = self._count(f"{segment} asks", num_requests, self.mix[segment])
        allowed = self._count(f"{segment} allowed", asking, self.allowed_share.get(segment, 0.9))
        share = target.other_share if target is not None else 0.0
        if target is not None:
            share = next((listed.share for listed in target.segment_shares if listed.segment == segment), share)
        return SegmentTraffic(
            segment=segment,
            num_requests=asking,
            num_allowed=allowed,
            probability_micro=round(allowed * share * 1e6),
            num_routed=self._count(f"{segment} routed", allowed, share),
        )

    def _count(self, what: str, num_tries: int, probability: float) -> int:
        if self.noise > 0.0:
            return sum(self.dice.random() < probability for _ in range(num_tries))
        due = self.owed.get(what, 0.0) + num_tries * probability
        count = min(num_tries, math.floor(due + 1e-9))
        self.owed[what] = due - count
        return count

    def _route(
        self, queue: Queue, work: int, pools: Mapping[str, PoolSnapshot], window_s: float, *, num_answered: int
    ) -> tuple[float, list[RouteWindow]]:
        """p99 of a route, and what routers and replicas say of it; nothing where no work came."""
        capacity_per_s = queue.capacity_per_s(pools)
        load = work / window_s / capacity_per_s if capacity_per_s > 0.0 else MAX_LOAD if work else 0.0
        p99_ms = queue.p99_ms(load) * math.exp(self.noise * self.dice.gauss(0.0, 1.0))
        if not work:
            return p99_ms, []
        name = "wide" if queue.lever == "rma" else "powerful"
        units = sum(
            grant.units_micro / 1e6 for pool in pools.values() for grant in pool.levers if grant.lever == queue.lever
        )
        done = round(min(1.0, 1.0 / load) * work) if load > 0.0 else 0
        busy_us = round(min(load, 1.0) * units * window_s * 1e6)
        seen = _route_window("router", name, alike(p99_ms, num_answered), num_answered, busy_us=0, units_done=0)
        told = _route_window("ranker", name, histogram([]), num_answered, busy_us=busy_us, units_done=done)
        return p99_ms, [told, seen]


def alike(p99_ms: float, count: int) -> HistogramFields:
    """So many latencies of one value: the loops read the p99 alone."""
    return histogram([p99_ms] * count)


def _account(lever: Lever, offered: int, *, dropped: int) -> Account:
    sheds = [ShedUnits(reason="backlog", units=dropped, value_micro=0)] if dropped else []
    return Account(lever=lever, offered=offered, admitted=offered - dropped, late=0, lost=0, sheds=sheds)


def _route_window(
    part: str, route: str, latency: HistogramFields, num_answered: int, *, busy_us: int, units_done: int
) -> RouteWindow:
    return RouteWindow(
        part=part,  # type: ignore[arg-type]
        route=route,  # type: ignore[arg-type]
        latency=latency,
        queue_wait=histogram([]),
        num_reporters=1,
        num_work=num_answered,
        num_answered=num_answered,
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=busy_us,
        units_done=units_done,
        max_pressure_micro=0,
    )
