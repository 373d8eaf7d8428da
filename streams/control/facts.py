"""From a closed window to the few figures that a tick needs."""

import msgspec

from schemas.histogram import ExponentialHistogram
from schemas.records import ControlWindow, HistogramFields
from streams.control.state import CapacityFacts, LatencyFacts

# Largest value of the records' ``Count``.
MAX_COUNT = 2**62


def capacity_facts(window: ControlWindow) -> CapacityFacts:
    """Figures of a capacity window over all pools, each able to serve the wide route.

    A pool's units are all that are idle; those of no use now are listed beside them and do not count.
    """
    assert window.capacity is not None
    pools = window.capacity.pools
    unusable_micro = sum(reason.units_micro for pool in pools for reason in pool.unusable)
    return CapacityFacts(
        window_index=window.window_index,
        source_partition=window.source_partition,
        end_ms=window.end_ms,
        limits=window.capacity.limits,
        usable_units_micro=max(0, sum(pool.units_micro for pool in pools) - unusable_micro),
        noticed_units_micro=sum(pool.noticed_units_micro for pool in pools),
    )


def latency_facts(window: ControlWindow) -> LatencyFacts:
    """Figures of a latency window over all routes and accounts of the lever."""
    assert window.latency is not None
    latency = window.latency
    wide = [route for route in latency.routes if route.part == "ranker" and route.route == "wide"]
    accounts = [account for account in latency.accounts if account.lever == "rma"]
    offered = sum(account.offered for account in accounts)
    return LatencyFacts(
        window_index=window.window_index,
        source_partition=window.source_partition,
        num_routers=latency.num_routers,
        num_requests=latency.num_requests,
        latency=latency.latency,
        offered=_bounded(offered),
        dropped=_bounded(offered - sum(account.admitted for account in accounts)),
        wide_busy_us=_bounded(sum(route.busy_us for route in wide)),
        wide_units_done=_bounded(sum(route.units_done for route in wide)),
    )


def histogram_of(fields: HistogramFields) -> ExponentialHistogram:
    """Histogram of packed fields; raises ValueError naming the field that cannot be believed."""
    return ExponentialHistogram.from_fields(**msgspec.structs.asdict(fields))


def _bounded(total: int) -> int:
    """A sum of counts as a count: a state that holds it must be readable again."""
    return min(max(total, 0), MAX_COUNT)
