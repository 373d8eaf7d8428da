"""From a closed window to the few figures that a tick needs. Whole windows are never kept."""

import msgspec
from msgspec import Struct

from schemas.histogram import ExponentialHistogram
from schemas.records import (
    CellLimits,
    ControlWindow,
    HistogramFields,
    LatencyWindow,
    PoolSnapshot,
    RouteWindow,
    SegmentTraffic,
)
from schemas.records.fields import Count, Lever, Name, Partition, Route, Share, Text, TimeMs
from streams.control.reporters import Judged

# Largest value of the records' ``Count``.
MAX_COUNT = 2**62
MICRO = 1_000_000
# Routers count requests once by segment and once in all; the latter may be corrected where one of them lies.
MOST_COUNTED_TIMES = 2


class PoolFacts(Struct, frozen=True, kw_only=True):
    """One pool whose units the allocator splits: what was said of it at its window's end.

    ``survives`` are the shares of its usable units that are expected to outlive the start of each lever, in the order
    of the limits' ``levers``; None where nothing is known yet.
    """

    snapshot: PoolSnapshot
    survives: tuple[Share | None, ...]

    @property
    def accelerator(self) -> Name:
        return self.snapshot.accelerator

    @property
    def usable_units_micro(self) -> Count:
        """Units of use now, without those announced to be taken back."""
        unusable_micro = sum(reason.units_micro for reason in self.snapshot.unusable)
        return max(0, self.snapshot.units_micro - unusable_micro - self.snapshot.noticed_units_micro)


class CapacityFacts(Struct, frozen=True, kw_only=True):
    """What a tick takes from a capacity window; units times 10^6, those announced to be taken back included.

    ``pools`` stand here only where the cell has levers to split them among.
    """

    window_index: int
    source_partition: Partition
    end_ms: TimeMs
    limits: CellLimits
    usable_units_micro: Count
    noticed_units_micro: Count
    pools: tuple[PoolFacts, ...] = ()


class PowerfulFacts(Struct, frozen=True, kw_only=True):
    """The powerful route in one window: latency as routers saw it, work as its replicas counted it, and the account.

    ``dropped`` of the ``offered`` upgrades were shed, late or lost.
    """

    latency: HistogramFields | None = None
    busy_us: Count = 0
    units_done: Count = 0
    num_answered: Count = 0
    offered: Count = 0
    dropped: Count = 0


class LatencyFacts(Struct, frozen=True, kw_only=True):
    """What a tick takes from a latency window without the reporters ``excluded``, of which ``exclusion`` says why.

    ``offered`` and ``dropped`` are extra candidates: dropped ones were shed, late or lost. ``wide_busy_us`` and
    ``wide_units_done`` are the replicas' own account of the wide route.
    """

    window_index: int
    source_partition: Partition
    num_routers: Count
    num_requests: Count
    latency: HistogramFields
    offered: Count
    dropped: Count
    wide_busy_us: Count
    wide_units_done: Count
    upstream: HistogramFields | None = None
    powerful: PowerfulFacts = PowerfulFacts()
    segments: tuple[SegmentTraffic, ...] = ()
    excluded: tuple[Name, ...] = ()
    exclusion: Text = ""


def capacity_facts(window: ControlWindow, *, pools: tuple[PoolFacts, ...] = ()) -> CapacityFacts:
    """Figures of a capacity window over all pools, and of each in ``pools`` alone.

    A pool's units are all that are idle; those of no use now are listed beside them and do not count.
    """
    assert window.capacity is not None
    found = window.capacity.pools
    unusable_micro = sum(reason.units_micro for pool in found for reason in pool.unusable)
    return CapacityFacts(
        window_index=window.window_index,
        source_partition=window.source_partition,
        end_ms=window.end_ms,
        limits=window.capacity.limits,
        usable_units_micro=_bounded(sum(pool.units_micro for pool in found) - unusable_micro),
        noticed_units_micro=_bounded(sum(pool.noticed_units_micro for pool in found)),
        pools=pools,
    )


def latency_facts(window: ControlWindow, judged: Judged) -> LatencyFacts:
    """Figures of a latency window over all routes and accounts, as it was judged."""
    latency = judged.latency
    wide = _routes(latency, "wide", part="ranker")
    offered, dropped = _account(latency, "rma")
    return LatencyFacts(
        window_index=window.window_index,
        source_partition=window.source_partition,
        num_routers=latency.num_routers,
        num_requests=_bounded(latency.num_requests),
        latency=latency.latency,
        offered=offered,
        dropped=dropped,
        wide_busy_us=_bounded(sum(route.busy_us for route in wide)),
        wide_units_done=_bounded(sum(route.units_done for route in wide)),
        upstream=latency.upstream,
        powerful=_powerful(latency),
        segments=_segments(latency),
        excluded=judged.excluded,
        exclusion=judged.detail,
    )


def histogram_of(fields: HistogramFields) -> ExponentialHistogram:
    """Histogram of packed fields; raises ValueError naming the field that cannot be believed."""
    return ExponentialHistogram.from_fields(**msgspec.structs.asdict(fields))


def _powerful(latency: LatencyWindow) -> PowerfulFacts:
    replicas = _routes(latency, "powerful", part="ranker")
    # One record of a route and part in a window, or none where the route is not used.
    seen = next(iter(_routes(latency, "powerful", part="router")), None)
    offered, dropped = _account(latency, "sbm")
    return PowerfulFacts(
        latency=seen.latency if seen is not None else None,
        busy_us=_bounded(sum(route.busy_us for route in replicas)),
        units_done=_bounded(sum(route.units_done for route in replicas)),
        num_answered=_bounded(sum(route.num_answered for route in replicas)),
        offered=offered,
        dropped=dropped,
    )


def _segments(latency: LatencyWindow) -> tuple[SegmentTraffic, ...]:
    """Who asked, or nobody where the counts cannot be: garbage would be remembered far longer than its window."""
    num_requests = sum(traffic.num_requests for traffic in latency.segments)
    is_believable = num_requests <= MOST_COUNTED_TIMES * latency.num_requests and all(
        traffic.num_routed <= traffic.num_allowed <= traffic.num_requests
        and traffic.probability_micro <= MICRO * traffic.num_allowed
        for traffic in latency.segments
    )
    return tuple(latency.segments) if is_believable else ()


def _routes(latency: LatencyWindow, route: Route, *, part: str) -> list[RouteWindow]:
    return [found for found in latency.routes if found.part == part and found.route == route]


def _account(latency: LatencyWindow, lever: Lever) -> tuple[int, int]:
    """What was offered of a lever's work, and what of it was dropped."""
    accounts = [account for account in latency.accounts if account.lever == lever]
    offered = sum(account.offered for account in accounts)
    return _bounded(offered), _bounded(offered - sum(account.admitted for account in accounts))


def _bounded(total: int) -> int:
    """A sum of counts as a count: a state that holds it must be readable again."""
    return min(max(total, 0), MAX_COUNT)
