"""Latency of a cell: what its routers and replicas measured in each window. Pure."""

from typing import Literal

from schemas.errors import RecordError
from schemas.framing import Decoder
from schemas.records import (
    CellLimits,
    LatencyInterval,
    LatencyWindow,
    RouteInterval,
    RouteWindow,
)
from schemas.settings import TimeSettings
from schemas.topics import SERVING_LATENCY
from streams.ingest.accounts import AccountSums, believe_account
from streams.ingest.aggregate import Closed, NumberedKind
from streams.ingest.bounds import bounded, micro
from streams.ingest.histograms import Merged, believe_histogram
from streams.ingest.reporters import ReporterSums, RouterSums
from streams.ingest.segments import SegmentSums, believe_segments

SATURATED = "histogram totals are saturated: an interval was left out of them"


class LatencyKind(NumberedKind):
    """Intervals of ``serving.latency``."""

    name: Literal["latency"] = "latency"
    topic = SERVING_LATENCY

    def decoder(self) -> Decoder:
        return Decoder(self.topic.record_types)

    def believe(self, record: LatencyInterval, time: TimeSettings) -> None:
        believe_histogram(record.latency, field="latency")
        routes = [route.route for route in record.routes]
        if len(set(routes)) != len(routes):
            raise RecordError("invalid_field", "a route is listed twice", field="routes")
        for index, route in enumerate(record.routes):
            believe_histogram(route.latency, field="routes[{}].latency", index=index)
            believe_histogram(route.queue_wait, field="routes[{}].queue_wait", index=index)
        for index, account in enumerate(record.accounts):
            believe_account(account, field=f"accounts[{index}]")
        if record.upstream is not None:
            believe_histogram(record.upstream, field="upstream")
        believe_segments(record.segments, field="segments")

    def source(self, record: LatencyInterval) -> str:
        return record.source

    def aggregate(self, time: TimeSettings) -> "LatencyCell":
        return LatencyCell()


class _Route:
    """Sums of one route as the reporters of one part saw it."""

    def __init__(self) -> None:
        self.latency = Merged()
        self.queue_wait = Merged()
        self.reporters = ReporterSums()
        self.num_work = 0
        self.num_answered = 0
        self.num_late = 0
        self.num_lost = 0
        self.num_retried = 0
        self.busy_us = 0
        self.units_done = 0
        self.max_pressure_micro = 0

    def add(self, source: str, route: RouteInterval) -> None:
        self.latency.add(route.latency)
        self.queue_wait.add(route.queue_wait)
        self.reporters.add(source, route)
        self.num_work += route.num_work
        self.num_answered += route.num_answered
        self.num_late += route.num_late
        self.num_lost += route.num_lost
        self.num_retried += route.num_retried
        self.busy_us += route.busy_us
        self.units_done += route.units_done
        self.max_pressure_micro = max(self.max_pressure_micro, micro(route.pressure))


class _Open:
    """Sums of one open window."""

    def __init__(self) -> None:
        self.latency = Merged()
        self.upstream = Merged()
        self.routes: dict[tuple[str, str], _Route] = {}
        self.accounts = AccountSums()
        self.segments = SegmentSums()
        self.routers = RouterSums()
        self.rankers: set[str] = set()
        self.num_requests = 0
        self.num_results = 0
        self.num_base_late = 0
        self.num_errors = 0
        self.num_intervals = 0
        self.num_duplicates = 0
        self.num_late = 0

    def histograms(self) -> list[Merged]:
        return [
            self.latency,
            self.upstream,
            *(merged for route in self.routes.values() for merged in (route.latency, route.queue_wait)),
        ]


class LatencyCell:
    """Windows of one cell's latency: sums over the accepted intervals that belong to the window.

    Request counts, segments, the cell's latency, upstream time and accounts are the routers' alone, who see a request
    whole and close the accounts; a replica's figures stand in its routes. Nothing is carried from window to window.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    def accept(self, record: LatencyInterval, *, window: int, append_ms: int, late: bool) -> None:
        sums = self._opened(window)
        sums.num_intervals += 1
        sums.num_late += late
        for route in record.routes:
            key = (record.part, route.route)
            held = sums.routes.get(key)
            if held is None:
                held = sums.routes[key] = _Route()
            held.add(record.source, route)
        if record.part == "ranker":
            sums.rankers.add(record.source)
        else:
            sums.routers.add(record)
            sums.latency.add(record.latency)
            if record.upstream is not None:
                sums.upstream.add(record.upstream)
            sums.num_requests += record.num_requests
            sums.num_results += record.num_results
            sums.num_base_late += record.num_base_late
            sums.num_errors += record.num_errors
            for account in record.accounts:
                sums.accounts.add(account)
            for traffic in record.segments:
                sums.segments.add(traffic)

    def count_duplicate(self, window: int) -> None:
        self._opened(window).num_duplicates += 1

    def close(self, window: int, limits: CellLimits) -> Closed:
        sums = self._open.pop(window, None) or _Open()
        return Closed(
            latency=LatencyWindow(
                latency=sums.latency.fields(),
                routes=[_route_window(part, name, route) for (part, name), route in sorted(sums.routes.items())],
                accounts=sums.accounts.accounts(),
                num_routers=len(sums.routers),
                num_rankers=len(sums.rankers),
                num_requests=bounded(sums.num_requests),
                num_results=bounded(sums.num_results),
                num_base_late=bounded(sums.num_base_late),
                num_errors=bounded(sums.num_errors),
                num_intervals=sums.num_intervals,
                num_duplicates=sums.num_duplicates,
                num_late=sums.num_late,
                # Unknown, not empty, where no caller said what it spent.
                upstream=sums.upstream.fields() if sums.upstream.histogram.count else None,
                segments=sums.segments.segments(),
                routers=sums.routers.figures(),
            ),
            note=SATURATED if any(merged.saturated for merged in sums.histograms()) else "",
        )

    def _opened(self, window: int) -> _Open:
        sums = self._open.get(window)
        if sums is None:
            sums = self._open[window] = _Open()
        return sums


def _route_window(part: str, name: str, route: _Route) -> RouteWindow:
    return RouteWindow(
        part=part,  # type: ignore[arg-type]
        route=name,  # type: ignore[arg-type]
        latency=route.latency.fields(),
        queue_wait=route.queue_wait.fields(),
        num_reporters=len(route.reporters),
        num_work=bounded(route.num_work),
        num_answered=bounded(route.num_answered),
        num_late=bounded(route.num_late),
        num_lost=bounded(route.num_lost),
        num_retried=bounded(route.num_retried),
        busy_us=bounded(route.busy_us),
        units_done=bounded(route.units_done),
        max_pressure_micro=route.max_pressure_micro,
        reporters=route.reporters.figures(),
    )
