"""Routers and replicas that say what cannot be: found, left out, named, forgiven when back in sense. Pure.

What a tick reads of reporters, each beside the others:

- ``p99`` of a router's latency;
- ``speed`` of a replica of an opportunistic route: units done per busy time;
- ``work per answer`` of a replica of the powerful route: units done per request;
- ``p99`` of the powerful route as a router saw it;
- ``requests`` and ``samples`` of a router against each other and against the base work that it sent (where that is not
  listed, against what the others take in): of three figures that should be one the middle one is believed. Traffic is
  not compared between routers, as it may honestly be a hundred times apart.

Whatever would raise a target is set aside in the very tick in which it is off: a p99 that is low, a speed that is high,
work per answer that is low, requests that are few. What would lower it is believed for two ticks and set aside from the
third one on, since it may be true. So no such lie ever raises a target, not for one tick, and none lowers it for long.
``suspects`` has the memory, ``outliers`` the rule.

Bounds. Among fewer than five reporters nothing is excluded, and never half of them or more. A router that divides all
its counts alike is a router of little traffic; sheds, upstream times and segments are merged for all routers, and who
said what of them is not told.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from schemas.records import HistogramFields, LatencyWindow, ReporterFigures
from streams.control.outliers import MIN_REPORTS, NEAR, median, minority, outliers
from streams.control.set_aside import (
    MIN_MS,
    P99,
    POWERFUL_P99,
    POWERFUL_WORK,
    REQUESTS,
    SAMPLES,
    speed_of,
    unpacked,
    without,
)
from streams.control.suspects import Case, Suspects, updated

QUANTILE = 0.99
# The p99 of ten values is their largest: of exponential times it is within a factor of eight but once in 100,000.
MIN_SAMPLES = 10
# Whoever did less than this share of what is usual hardly weighs in the sums, and its speed is mostly chance.
MIN_WORK_SHARE = 1.0 / 8.0
SPEED_ROUTES = ("wide", "powerful")
MAX_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A latency window without what was set aside, whose figures those were, and what to remember.

    ``excluded`` is in order of names; ``detail`` says the same in words, empty where nobody is excluded.
    """

    latency: LatencyWindow
    excluded: tuple[str, ...]
    detail: str
    suspects: Suspects


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """One figure as ``num_judged`` of its ``sources`` report it: who is off by which factor, and which way raises."""

    name: str
    sources: Collection[str]
    num_judged: int
    factors: Mapping[str, float]
    raised_by_high: bool

    def set_aside(self, suspects: Suspects) -> list[str]:
        """Whose figure is not counted: the excluded, and those that would raise a target; the worst of them first."""
        if self.num_judged < MIN_REPORTS:
            return []
        scores = suspects.scores(self.name)
        raising = {source for source, factor in self.factors.items() if (factor > 1.0) == self.raised_by_high}
        aside = raising | (suspects.excluded(self.name) & set(self.sources))
        return sorted(aside, key=lambda source: (-scores.get(source, 0), source))[: minority(self.num_judged)]


def judged(latency: LatencyWindow, suspects: Suspects) -> Judged:
    """The window as it may be counted, after one more tick of judgement."""
    believed = _believed_requests(latency)
    figures = list(_figures(latency, believed, suspects))
    suspects = updated(suspects, {(figure.name, source) for figure in figures for source in figure.factors})
    aside = {figure.name: figure.set_aside(suspects) for figure in figures}
    factors = {(figure.name, source): factor for figure in figures for source, factor in figure.factors.items()}
    named = [(name, source) for name, sources in aside.items() for source in sources]
    return Judged(
        latency=without(latency, aside, believed) if named else latency,
        excluded=tuple(sorted({source for _, source in named})),
        detail=_detail(named, factors),
        suspects=suspects,
    )


def _figures(latency: LatencyWindow, believed: Mapping[str, int], suspects: Suspects) -> Iterator[_Figure]:
    sources = [router.source for router in latency.routers]
    heard = [router for router in latency.routers if router.latency.count >= MIN_SAMPLES]
    p99_logs = {router.source: _p99_log(router.latency) for router in heard}
    yield _compared(P99, sources, p99_logs, suspects, high_raises=False)
    yield _agreed(SAMPLES, {router.source: router.latency.count for router in latency.routers}, believed, high=True)
    yield _agreed(REQUESTS, {router.source: router.num_requests for router in latency.routers}, believed, high=False)
    for route in latency.routes:
        sources = [reporter.source for reporter in route.reporters]
        if route.part == "ranker" and route.route in SPEED_ROUTES:
            working = _working(route.reporters)
            speeds = {reporter.source: _log(reporter.units_done, reporter.busy_us) for reporter in working}
            yield _compared(speed_of(route), sources, speeds, suspects, high_raises=True)
            if route.route == "powerful":
                work = {reporter.source: _log(reporter.units_done, reporter.num_answered) for reporter in working}
                yield _compared(POWERFUL_WORK, sources, work, suspects, high_raises=False)
        elif route.part == "router" and route.route == "powerful":
            answered = [reporter for reporter in route.reporters if reporter.num_answered >= MIN_SAMPLES]
            p99_logs = {reporter.source: math.log(max(1, reporter.p99_us)) for reporter in answered}
            yield _compared(POWERFUL_P99, sources, p99_logs, suspects, high_raises=False)


def _compared(
    name: str, sources: Collection[str], logs: Mapping[str, float], suspects: Suspects, *, high_raises: bool
) -> _Figure:
    """A figure that should be about the same for all; ``logs`` are of those that can be judged."""
    off = outliers(logs, distrusted=suspects.excluded(name))
    factors = {source: math.exp(distance) for source, distance in off.items()}
    return _Figure(name=name, sources=sources, num_judged=len(logs), factors=factors, raised_by_high=high_raises)


def _agreed(name: str, said: Mapping[str, int], believed: Mapping[str, int], *, high: bool) -> _Figure:
    """A figure that should be what the same reporter's other figures say."""
    ratios = {source: (said[source] + 1) / (believed[source] + 1) for source in said if source in believed}
    factors = {source: ratio for source, ratio in sorted(ratios.items()) if not 1.0 / NEAR <= ratio <= NEAR}
    if len(factors) > minority(len(said)):
        factors = {}
    return _Figure(name=name, sources=said.keys(), num_judged=len(said), factors=factors, raised_by_high=high)


def _believed_requests(latency: LatencyWindow) -> dict[str, int]:
    """Requests of each listed router: of what it took in, answered and sent as base work the middle one."""
    if len(latency.routers) < MIN_REPORTS:
        return {}
    usual = round(median([router.num_requests for router in latency.routers]))
    sent = {
        reporter.source: reporter.num_work
        for route in latency.routes
        if route.part == "router" and route.route == "baseline"
        for reporter in route.reporters
    }
    return {
        router.source: sorted((router.num_requests, router.latency.count, sent.get(router.source, usual)))[1]
        for router in latency.routers
    }


def _working(reporters: Iterable[ReporterFigures]) -> list[ReporterFigures]:
    """Those that did a share of the work, or of the time, that is worth judging."""
    active = [reporter for reporter in reporters if reporter.units_done or reporter.busy_us]
    if not active:
        return []
    units = MIN_WORK_SHARE * median([reporter.units_done for reporter in active])
    busy_us = MIN_WORK_SHARE * median([reporter.busy_us for reporter in active])
    return [reporter for reporter in active if reporter.units_done >= units or reporter.busy_us >= busy_us]


def _log(num_done: int, num_spent: int) -> float:
    """Logarithm of a ratio of counts; one more of each, so that nothing is a figure too."""
    return math.log((num_done + 1) / (num_spent + 1))


def _p99_log(packed: HistogramFields) -> float:
    return math.log(max(MIN_MS, unpacked(packed).quantile(QUANTILE) or 0.0))


def _detail(named: Collection[Case], factors: Mapping[Case, float]) -> str:
    if not named:
        return ""
    words = [
        f"{source} ({name} {_times(factors[name, source])} what it should be)"
        if (name, source) in factors
        else f"{source} ({name}: in sense too short a time)"
        for name, source in sorted(named, key=lambda case: (case[1], case[0]))
    ]
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return f"not counted: {', '.join(words[:MAX_NAMED])}{more}"


def _times(factor: float) -> str:
    return f"{factor:.0f} times" if factor >= 1.0 else f"{factor:.2g} times"
