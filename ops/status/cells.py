"""From the facts of a cell to what is shown of it. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from ops.status.facts import CellFacts, SeenInterval
from ops.status.measured import measured_of
from ops.status.model import (
    CellState,
    CellStatus,
    LatencyStatus,
    LimitsStatus,
    OptionalStatus,
    ReporterStatus,
    RouteStatus,
    TargetStatus,
)
from ops.status.parts import MS_PER_S, at_time
from ops.status.pools import MICRO, events, pools_of
from schemas.histogram import ExponentialHistogram
from schemas.records import CellDeclaration, CellLimits, ControlWindow, HistogramFields
from streams.control.facts import histogram_of

# A reporter that misses this many of its intervals in a row is silent; a busy machine delays one or two.
SILENT_INTERVALS = 5
MIN_SILENT_MS = 3_000


def cell_status(name: str, facts: CellFacts, declaration: CellDeclaration, *, now_ms: int) -> CellStatus:
    """Everything about one declared cell."""
    window_ms = max(1, declaration.window_ms)
    limits = declaration.limits_at(now_ms // window_ms)
    capacity, latency = facts.last_capacity(), facts.last_latency()
    reclaims = events(facts.capacity.values())[1]
    shut_out = facts.still_shut_out(now_ms)
    return CellStatus(
        cell=name,
        state=_state(declaration, now_ms // window_ms),
        window_ms=declaration.window_ms,
        recent_s=_recent_ms(facts.latency.values() or facts.capacity.values()) / MS_PER_S,
        providers=list(declaration.providers),
        limits=None if limits is None else _limits(limits),
        capacity_window_end=None if capacity is None else at_time(capacity.end_ms),
        latency_window_end=None if latency is None else at_time(latency.end_ms),
        target=_target(facts, now_ms=now_ms),
        not_heard=None if shut_out is None else str(shut_out),
        latency=None if latency is None else _latency(latency, limits),
        pools=pools_of(facts),
        optional=_optional(facts.latency.values()),
        num_reclaims=sum(reclaims.values()),
        num_hosts_silent=sum(w.capacity.num_hosts_silent for w in facts.capacity.values() if w.capacity is not None),
        routes=[] if latency is None else _routes(latency),
        reporters=[_reporter(seen, now_ms=now_ms) for _, seen in sorted(facts.reporters.items())],
        measured=measured_of(facts.uplift),
    )


def _state(declaration: CellDeclaration, window: int) -> CellState:
    if declaration.until_window is not None and window >= declaration.until_window:
        return "retired"
    return "declared" if window >= declaration.revisions[0].from_window else "upcoming"


def _limits(limits: CellLimits) -> LimitsStatus:
    return LimitsStatus(
        base_candidates=limits.base_candidates,
        max_candidates=limits.max_candidates,
        latency_limit_ms=limits.latency_limit_ms,
        shed_allowance=limits.shed_allowance,
        rise_share=limits.rise_share,
        utilisation=limits.utilisation,
    )


def _target(facts: CellFacts, *, now_ms: int) -> TargetStatus | None:
    target, previous = facts.target, facts.previous_target
    if target is None:
        return None
    return TargetStatus(
        candidates=target.candidate_target,
        previous_candidates=None if previous is None else previous.candidate_target,
        base_candidates=target.base_candidates,
        max_candidates=target.max_candidates,
        extra_budget_units_s=round(target.extra_budget_units_s, 3),
        coverage=target.coverage,
        segment_shares={share.segment: share.share for share in target.segment_shares},
        reason=target.reason,
        detail=target.detail,
        window_index=target.window_index,
        window_end=at_time(target.window_end_ms),
        valid_until=at_time(target.valid_until_ms),
        valid_for_s=round((target.valid_until_ms - now_ms) / MS_PER_S, 3),
        # As whoever applies it judges: up to that millisecond it counts.
        is_expired=now_ms > target.valid_until_ms,
        latency_limit_ms=target.latency_limit_ms,
        latency_p99_ms=_rounded(target.latency_p99_ms),
        request_rate_per_s=round(target.request_rate_per_s, 3),
        controller_version=target.controller_version,
    )


def _latency(window: ControlWindow, limits: CellLimits | None) -> LatencyStatus:
    seen = window.latency
    assert seen is not None
    histogram = _histogram([seen.latency])
    p99_ms = histogram.quantile(0.99)
    limit_ms = None if limits is None else limits.latency_limit_ms
    return LatencyStatus(
        window_end=at_time(window.end_ms),
        p50_ms=_rounded(histogram.quantile(0.5)),
        p99_ms=_rounded(p99_ms),
        limit_ms=limit_ms,
        is_over_limit=p99_ms is not None and limit_ms is not None and p99_ms > limit_ms,
        num_samples=histogram.count,
        num_requests=seen.num_requests,
        num_results=seen.num_results,
        num_base_late=seen.num_base_late,
        num_errors=seen.num_errors,
        num_routers=seen.num_routers,
        num_rankers=seen.num_rankers,
    )


def _optional(windows: Iterable[ControlWindow]) -> list[OptionalStatus]:
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    sheds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for window in windows:
        for account in window.latency.accounts if window.latency is not None else ():
            sums[account.lever] += Counter(
                offered=account.offered, admitted=account.admitted, late=account.late, lost=account.lost
            )
            sheds[account.lever] += Counter({shed.reason: shed.units for shed in account.sheds})
    return [
        OptionalStatus(
            lever=lever,
            offered=total["offered"],
            admitted=total["admitted"],
            late=total["late"],
            lost=total["lost"],
            sheds=dict(sorted(sheds[lever].items())),
        )
        for lever, total in sorted(sums.items())
    ]


def _routes(window: ControlWindow) -> list[RouteStatus]:
    """Work by the replicas' own count, late and lost by the routers', who alone can tell."""
    seen = window.latency
    assert seen is not None
    names = sorted({route.route for route in seen.routes})
    rows = []
    for name in names:
        replicas = next((route for route in seen.routes if (route.part, route.route) == ("ranker", name)), None)
        routers = next((route for route in seen.routes if (route.part, route.route) == ("router", name)), None)
        rows.append(
            RouteStatus(
                route=name,
                num_replicas=0 if replicas is None else replicas.num_reporters,
                pressure=max(side.max_pressure_micro for side in (replicas, routers) if side is not None) / MICRO,
                num_work=0 if replicas is None else replicas.num_work,
                num_answered=0 if replicas is None else replicas.num_answered,
                num_late=0 if routers is None else routers.num_late,
                num_lost=0 if routers is None else routers.num_lost,
            )
        )
    return rows


def _reporter(seen: SeenInterval, *, now_ms: int) -> ReporterStatus:
    record = seen.record
    # A replica's own figures stand in its routes.
    histogram = _histogram([record.latency] if record.part == "router" else [route.latency for route in record.routes])
    age_ms = max(0, now_ms - seen.append_ms)
    return ReporterStatus(
        source=record.source,
        part=record.part,
        last_seen=at_time(seen.append_ms),
        age_s=round(age_ms / MS_PER_S, 3),
        is_silent=age_ms > max(MIN_SILENT_MS, SILENT_INTERVALS * record.interval_ms),
        interval_ms=record.interval_ms,
        p50_ms=_rounded(histogram.quantile(0.5)),
        p99_ms=_rounded(histogram.quantile(0.99)),
        num_samples=histogram.count,
        num_waiting=record.num_waiting,
        pressure=max((route.pressure for route in record.routes), default=0.0),
    )


def _histogram(packed: Iterable[HistogramFields]) -> ExponentialHistogram:
    """Merged histogram; one that contradicts itself is passed over, as ingest dead-letters it."""
    merged = ExponentialHistogram()
    for fields in packed:
        try:
            merged.add(histogram_of(fields))
        except ValueError:
            continue
    return merged


def _recent_ms(windows: Iterable[ControlWindow]) -> int:
    held = list(windows)
    return max(w.end_ms for w in held) - min(w.start_ms for w in held) if held else 0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
