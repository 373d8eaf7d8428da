"""Who reported what: routers and the reporters of a route beside each other, so that one that lies can be told. Pure.

A histogram a source is kept for the first MAX_TRACKED sources of a window, in the order of the log, so that a fleet of
made-up names costs no more memory than that; what a window lists are the ones with the most to say among them.
"""

from collections.abc import Mapping

from schemas.histogram import MAX_VALUE
from schemas.records import LatencyInterval, ReporterFigures, RouteInterval, RouterFigures
from streams.ingest.bounds import bounded, largest
from streams.ingest.histograms import Merged

MAX_REPORTERS = 64
MAX_ROUTERS = 32
MAX_TRACKED = 1_024
LATENCY_QUANTILE = 0.99
US_PER_MS = 1_000


class _Reporter:
    """Sums of one reporter of one route."""

    __slots__ = ("busy_us", "latency", "num_answered", "num_work", "units_done")

    def __init__(self) -> None:
        self.latency = Merged()
        self.num_work = 0
        self.num_answered = 0
        self.busy_us = 0
        self.units_done = 0


class ReporterSums:
    """Reporters of one route as one part of the system: ``len`` counts all, ``figures`` lists the largest."""

    def __init__(self) -> None:
        self._sources: dict[str, _Reporter | None] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, source: str, route: RouteInterval) -> None:
        """Add what one source says of the route in one interval."""
        if source not in self._sources:
            self._sources[source] = _Reporter() if len(self._sources) < MAX_TRACKED else None
        reporter = self._sources[source]
        if reporter is None:
            return
        reporter.latency.add(route.latency)
        reporter.num_work += route.num_work
        reporter.num_answered += route.num_answered
        reporter.busy_us += route.busy_us
        reporter.units_done += route.units_done

    def figures(self) -> list[ReporterFigures]:
        """Figures of the MAX_REPORTERS with the most work taken in and answered, in order of names."""
        tracked = {name: reporter for name, reporter in self._sources.items() if reporter is not None}
        kept, _ = largest({name: found.num_work + found.num_answered for name, found in tracked.items()}, MAX_REPORTERS)
        return [_reporter_figures(name, tracked) for name in kept]


class _Router:
    """Sums of one router."""

    __slots__ = ("latency", "num_requests")

    def __init__(self) -> None:
        self.latency = Merged()
        self.num_requests = 0


class RouterSums:
    """Routers of one window, each with the latency that it saw."""

    def __init__(self) -> None:
        self._sources: dict[str, _Router | None] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, record: LatencyInterval) -> None:
        """Add one router's interval."""
        if record.source not in self._sources:
            self._sources[record.source] = _Router() if len(self._sources) < MAX_TRACKED else None
        router = self._sources[record.source]
        if router is None:
            return
        router.latency.add(record.latency)
        router.num_requests += record.num_requests

    def figures(self) -> list[RouterFigures]:
        """Figures of the MAX_ROUTERS with the most requests, in order of names."""
        tracked = {name: router for name, router in self._sources.items() if router is not None}
        kept, _ = largest({name: router.num_requests for name, router in tracked.items()}, MAX_ROUTERS)
        return [
            RouterFigures(
                source=name, num_requests=bounded(tracked[name].num_requests), latency=tracked[name].latency.fields()
            )
            for name in kept
        ]


def _reporter_figures(name: str, reporters: Mapping[str, _Reporter]) -> ReporterFigures:
    reporter = reporters[name]
    # A believable histogram may hold what no clock can measure; 0 where nothing was answered.
    p99_ms = min(reporter.latency.histogram.quantile(LATENCY_QUANTILE) or 0.0, MAX_VALUE)
    return ReporterFigures(
        source=name,
        num_work=bounded(reporter.num_work),
        num_answered=bounded(reporter.num_answered),
        p99_us=round(p99_ms * US_PER_MS),
        busy_us=bounded(reporter.busy_us),
        units_done=bounded(reporter.units_done),
    )
