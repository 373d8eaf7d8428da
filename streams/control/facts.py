"""From a closed window to the few figures that a tick needs."""

import msgspec

from schemas.histogram import ExponentialHistogram
from schemas.records import ControlWindow, HistogramFields
from streams.control.state import CapacityFacts, LatencyFacts

LATENCY_QUANTILE = 0.99


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
    """Figures of a latency window; raises ValueError when its histogram is none."""
    assert window.latency is not None
    latency = window.latency
    histogram = histogram_of(latency.latency)
    wide = [route for route in latency.routes if route.part == "ranker" and route.route == "wide"]
    accounts = [account for account in latency.accounts if account.lever == "rma"]
    offered = sum(account.offered for account in accounts)
    return LatencyFacts(
        window_index=window.window_index,
        source_partition=window.source_partition,
        num_routers=latency.num_routers,
        num_requests=latency.num_requests,
        num_samples=histogram.count,
        p99_ms=histogram.quantile(LATENCY_QUANTILE),
        offered=offered,
        dropped=max(0, offered - sum(account.admitted for account in accounts)),
        wide_busy_us=sum(route.busy_us for route in wide),
        wide_units_done=sum(route.units_done for route in wide),
    )


def histogram_of(fields: HistogramFields) -> ExponentialHistogram:
    """Histogram of packed fields; raises ValueError naming the field that cannot be believed."""
    return ExponentialHistogram.from_fields(**msgspec.structs.asdict(fields))
