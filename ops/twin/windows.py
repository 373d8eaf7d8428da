"""Closed windows as ingest would send them, from what the twin measured. Pure.

Shape legend: B buckets of a latency histogram.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.twin.queues import LatencyScale
from schemas.histogram import ExponentialHistogram
from schemas.records import (
    Account,
    CapacityWindow,
    CellLimits,
    ControlWindow,
    HistogramFields,
    LatencyWindow,
    PoolWindow,
    RouteWindow,
    SegmentTraffic,
    ShedUnits,
)
from schemas.records.fields import Lever, Route

_MICRO = 1_000_000
EMPTY = HistogramFields(**ExponentialHistogram().to_fields())


@dataclass(frozen=True, kw_only=True)
class RouteFigures:
    """One route in a window: histograms as routers and replicas saw it, and what its replicas did."""

    route: Route
    latency: HistogramFields
    num_reporters: int
    num_work: int
    busy_s: float
    units_done: int
    pressure: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All that routers and replicas of a cell measured in one window."""

    latency: HistogramFields
    upstream: HistogramFields | None
    routes: Sequence[RouteFigures]
    accounts: Sequence[Account]
    segments: Sequence[SegmentTraffic]
    num_routers: int
    num_requests: int
    num_base_late: int


def capacity_window(
    cell: str, index: int, *, window_ms: int, limits: CellLimits, pools: Sequence[PoolWindow]
) -> ControlWindow:
    """Capacity of a cell at the end of window ``index``."""
    return ControlWindow(
        cell=cell,
        kind="capacity",
        source_partition=0,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        capacity=CapacityWindow(
            limits=limits,
            pools=list(pools),
            num_hosts=sum(pool.num_hosts for pool in pools),
            num_hosts_silent=0,
            num_events=sum(pool.num_hosts for pool in pools),
            num_duplicates=0,
            num_late=0,
        ),
    )


def latency_window(cell: str, index: int, *, window_ms: int, measured: Measured) -> ControlWindow:
    """What was measured in window ``index``."""
    num_rankers = sum(route.num_reporters for route in measured.routes)
    return ControlWindow(
        cell=cell,
        kind="latency",
        source_partition=0,
        window_index=index,
        start_ms=index * window_ms,
        end_ms=(index + 1) * window_ms,
        latency=LatencyWindow(
            latency=measured.latency,
            routes=[window for route in measured.routes for window in _route_windows(route, measured.num_routers)],
            accounts=list(measured.accounts),
            num_routers=measured.num_routers,
            num_rankers=num_rankers,
            num_requests=measured.num_requests,
            num_results=measured.num_requests,
            num_base_late=measured.num_base_late,
            num_errors=0,
            num_intervals=measured.num_routers + num_rankers,
            num_duplicates=0,
            num_late=0,
            upstream=measured.upstream,
            segments=list(measured.segments),
        ),
    )


def _route_windows(route: RouteFigures, num_routers: int) -> list[RouteWindow]:
    """As the routers saw it, and as its replicas did."""
    seen = RouteWindow(
        part="router",
        route=route.route,
        latency=route.latency,
        queue_wait=EMPTY,
        num_reporters=num_routers,
        num_work=route.num_work,
        num_answered=route.num_work,
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=0,
        units_done=0,
        max_pressure_micro=round(route.pressure * _MICRO),
    )
    if not route.num_reporters:
        return [seen] if route.num_work else []
    done = RouteWindow(
        part="ranker",
        route=route.route,
        latency=route.latency,
        queue_wait=EMPTY,
        num_reporters=route.num_reporters,
        num_work=route.num_work,
        num_answered=route.num_work,
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=round(route.busy_s * _MICRO),
        units_done=route.units_done,
        max_pressure_micro=round(route.pressure * _MICRO),
    )
    return [seen, done]


def account(
    lever: Lever, *, offered: int, sheds: dict[str, int], offered_value_micro: int, admitted_value_micro: int
) -> Account:
    """Account of optional work: what was not shed was admitted. The value that is missing is shared out over the sheds
    by their units, to the last micro-unit."""
    kept = [(reason, units) for reason, units in sorted(sheds.items()) if units > 0]
    num_shed = sum(units for _, units in kept)
    missing_micro = offered_value_micro - admitted_value_micro
    if not kept:
        admitted_value_micro = offered_value_micro
    shed_units: list[ShedUnits] = []
    passed = given_micro = 0
    for reason, units in kept:
        passed += units
        value_micro = missing_micro * passed // num_shed - given_micro
        given_micro += value_micro
        shed_units.append(ShedUnits(reason=reason, units=units, value_micro=value_micro))
    return Account(
        lever=lever,
        offered=offered,
        admitted=offered - num_shed,
        late=0,
        lost=0,
        sheds=shed_units,
        offered_value_micro=offered_value_micro,
        admitted_value_micro=admitted_value_micro,
    )


def drawn_histogram(
    cumulative_B: NDArray[np.float64], num: int, *, scale: LatencyScale, rng: np.random.Generator | None
) -> tuple[HistogramFields, float | None]:
    """Histogram of ``num`` independent values of a distribution, and its p99; None for no value.

    One multinomial draw over the buckets is the same as ``num`` draws of values. Without ``rng``: what is expected,
    whole counts by largest remainders.
    """
    if num <= 0:
        return EMPTY, None
    shares_B = cumulative_B.copy()
    shares_B[1:] -= cumulative_B[:-1]
    np.maximum(shares_B, 0.0, out=shares_B)
    # What lies beyond the last edge counts there.
    shares_B[-1] += max(0.0, 1.0 - float(np.add.reduce(shares_B)))
    counts_B = _whole(shares_B * num, num) if rng is None else rng.multinomial(num, shares_B / np.add.reduce(shares_B))
    filled = counts_B.nonzero()[0]
    first, last = int(filled[0]), int(filled[-1])
    p99_bucket = int(counts_B.cumsum().searchsorted(math.ceil(0.99 * num)))
    return HistogramFields(
        scale=scale.SCALE,
        offset=scale.offset + first,
        counts=counts_B[first : last + 1].astype("<i8").tobytes(),
        zero_count=0,
        count=num,
        sum_micro=round(float(counts_B @ scale.middles_B) * _MICRO),
    ), float(scale.middles_B[p99_bucket])


def _whole(expected_B: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    counts_B = np.floor(expected_B).astype(np.int64)
    missing = num - int(counts_B.sum())
    # Stable, so that of equal remainders the lower bucket goes first.
    order_B = np.argsort(counts_B - expected_B, kind="stable")
    counts_B[order_B[:missing]] += 1
    return counts_B
