"""A latency window without what was set aside of its reporters' figures. Pure.

A histogram that is the whole of several is merged anew where each of them is at hand, and trimmed where not.
"""

from collections.abc import Collection, Mapping

import msgspec

from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields, LatencyWindow, ReporterFigures, RouteWindow
from streams.control.outliers import NEAR, median
from streams.control.trim import without_highest, without_lowest

# The figures that reporters are judged by; of a route's speed each route has its own.
P99 = "p99"
SAMPLES = "samples"
REQUESTS = "requests"
POWERFUL_P99 = "p99 of powerful"
POWERFUL_WORK = "work per answer of powerful"
# Below a microsecond all times are alike.
MIN_MS = 1e-3
US_PER_MS = 1_000.0


def without(latency: LatencyWindow, aside: Mapping[str, Collection[str]], believed: Mapping[str, int]) -> LatencyWindow:
    """The window as it may be counted.

    ``aside`` names the reporters by figure, ``believed`` are the requests of each router that can be judged.
    """
    unheard = {*aside[P99], *aside[SAMPLES]}
    correction = sum(
        believed[router.source] - router.num_requests
        for router in latency.routers
        if router.source in aside[REQUESTS] and router.source in believed
    )
    return msgspec.structs.replace(
        latency,
        latency=_merged(latency, unheard) if unheard else latency.latency,
        num_requests=max(0, latency.num_requests + correction),
        routes=[_route_without(route, aside) for route in latency.routes],
        routers=[router for router in latency.routers if router.source not in unheard],
    )


def _merged(latency: LatencyWindow, unheard: Collection[str]) -> HistogramFields:
    """Latency of the listed routers that are heard; of those too many to be listed nothing else is known."""
    merged = ExponentialHistogram()
    try:
        for router in latency.routers:
            if router.source not in unheard:
                merged.add(unpacked(router.latency))
    except ValueError:
        # Ingest has left out of the whole what was too much for one histogram.
        return latency.latency
    return HistogramFields(**merged.to_fields())


def _route_without(route: RouteWindow, aside: Mapping[str, Collection[str]]) -> RouteWindow:
    if route.part == "ranker":
        sources = {*aside.get(speed_of(route), ())}
        if route.route == "powerful":
            sources |= {*aside.get(POWERFUL_WORK, ())}
        return _without_work(route, _of(route, sources))
    gone = _of(route, aside.get(POWERFUL_P99, ())) if route.route == "powerful" else []
    heard = [reporter for reporter in route.reporters if reporter not in gone]
    if not gone or not heard:
        return route
    usual_ms = max(MIN_MS, median([reporter.p99_us for reporter in heard]) / US_PER_MS)
    low = sum(reporter.num_answered for reporter in gone if reporter.p99_us <= US_PER_MS * usual_ms)
    high = sum(reporter.num_answered for reporter in gone if reporter.p99_us > US_PER_MS * usual_ms)
    left = without_highest(without_lowest(route.latency, low), high, above=NEAR * usual_ms)
    return msgspec.structs.replace(route, latency=left, reporters=heard)


def _without_work(route: RouteWindow, gone: Collection[ReporterFigures]) -> RouteWindow:
    return msgspec.structs.replace(
        route,
        num_work=max(0, route.num_work - sum(reporter.num_work for reporter in gone)),
        num_answered=max(0, route.num_answered - sum(reporter.num_answered for reporter in gone)),
        busy_us=max(0, route.busy_us - sum(reporter.busy_us for reporter in gone)),
        units_done=max(0, route.units_done - sum(reporter.units_done for reporter in gone)),
        reporters=[reporter for reporter in route.reporters if reporter not in gone],
    )


def _of(route: RouteWindow, sources: Collection[str]) -> list[ReporterFigures]:
    return [reporter for reporter in route.reporters if reporter.source in sources]


def speed_of(route: RouteWindow) -> str:
    """Name of the figure of a route's speed."""
    return f"speed of {route.route}"


def unpacked(packed: HistogramFields) -> ExponentialHistogram:
    """Histogram of fields that were believed."""
    return ExponentialHistogram.from_fields(**msgspec.structs.asdict(packed))
