"""A cell in words: each fact of it as a label and a sentence, for any rendering. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ops.status.model import (
    CellStatus,
    LatencyStatus,
    MeasuredStatus,
    OptionalStatus,
    PoolStatus,
    ReporterStatus,
    TargetStatus,
)
from ops.status.words import age, counts, number, plural, size

Tone = Literal["plain", "good", "bad"]


@dataclass(frozen=True)
class Sentence:
    """One fact: what it is about, what it says, and whether it is as it should be."""

    label: str
    text: str
    tone: Tone = "plain"


def cell_sentences(cell: CellStatus, *, now: datetime) -> Iterator[Sentence]:
    """Everything that is shown of a cell, the most wanted first."""
    yield Sentence("limits", _limits(cell))
    if cell.target is None:
        yield Sentence("target", "none yet", "bad")
    else:
        yield from _target(cell.target)
    if cell.latency is None:
        yield Sentence("latency", "no window yet", "bad")
    else:
        yield _latency(cell.latency, now=now)
    for account in cell.optional:
        yield Sentence(_EXTRAS.get(account.lever, account.lever), _account(account, recent_s=cell.recent_s))
    yield Sentence("reclaims", _reclaims(cell))
    for pool in cell.pools:
        yield Sentence("pool", f"{pool.accelerator}: {_pool(pool)}", "plain" if pool.usable_units else "bad")
    if not cell.pools and cell.capacity_window_end is not None:
        yield Sentence("pool", "no idle capacity is offered", "bad")
    if cell.measured is not None:
        yield _measured(cell.measured)
    if cell.routes:
        yield Sentence("routes", "; ".join(_route(cell)))
    if cell.reporters:
        yield _reporters(cell.reporters)


def _measured(measured: MeasuredStatus) -> Sentence:
    told = f"{plural(len(measured.segments), 'segment')}, {plural(measured.num_requests, 'request')}"
    told += f" and {measured.pending_requests:,} pending" if measured.pending_requests else ""
    late = f", {measured.num_late_outcomes:,} outcomes late" if measured.num_late_outcomes else ""
    mode = "; A/A test" if measured.is_aa else ""
    split = f"; SPLIT IS OFF in {', '.join(measured.mismatched)}" if measured.mismatched else ""
    crossed = f"; at base: {'; '.join(measured.guardrails)}" if measured.guardrails else ""
    return Sentence("measured", f"{told}{late}{mode}{split}{crossed}", "bad" if split or crossed else "plain")


_EXTRAS = {"rma": "extras", "sbm": "upgrades"}


def _limits(cell: CellStatus) -> str:
    if cell.limits is None:
        return f"{cell.state}: none in force"
    limits = cell.limits
    state = "" if cell.state == "declared" else f"{cell.state}; "
    return (
        f"{state}{limits.base_candidates} to {limits.max_candidates} candidates, "
        f"p99 at most {number(limits.latency_limit_ms)} ms, windows of {number(cell.window_ms / 1_000)} s"
    )


def _target(target: TargetStatus) -> Iterator[Sentence]:
    was = "" if target.previous_candidates in (None, target.candidates) else f", was {target.previous_candidates}"
    coverage = f"; coverage {target.coverage:.0%}" if target.coverage else ""
    held = f"{target.candidates} candidates{was}; budget {number(target.extra_budget_units_s)} extras/s{coverage}"
    if target.is_expired:
        yield Sentence("target", f"{held}; EXPIRED {age(-target.valid_for_s)} ago: base work only", "bad")
    else:
        yield Sentence("target", f"{held}; valid for {age(target.valid_for_s)} more", "good")
    yield Sentence("why", f"{target.reason}: {target.detail}" if target.detail else target.reason)


def _latency(seen: LatencyStatus, *, now: datetime) -> Sentence:
    ended = age((now - seen.window_end).total_seconds())
    told = f"{plural(seen.num_samples, 'sample')}, {plural(seen.num_requests, 'request')}"
    late = f", {seen.num_base_late} base late" if seen.num_base_late else ""
    errors = f", {plural(seen.num_errors, 'error')}" if seen.num_errors else ""
    if seen.p50_ms is None or seen.p99_ms is None:
        return Sentence("latency", f"{told}{late}{errors}; window ended {ended} ago")
    limit = "" if seen.limit_ms is None else f" of {number(seen.limit_ms)} ms"
    over = ", OVER THE LIMIT" if seen.is_over_limit else ""
    return Sentence(
        "latency",
        f"p50 {number(seen.p50_ms)} ms, p99 {number(seen.p99_ms)}{limit or ' ms'}{over}; {told}{late}{errors}; "
        f"window ended {ended} ago",
        "bad" if seen.is_over_limit else "good",
    )


def _account(account: OptionalStatus, *, recent_s: float) -> str:
    shed = sum(account.sheds.values())
    reasons = f" ({counts(account.sheds)})" if account.sheds else ""
    return (
        f"{account.offered:,} offered = {account.admitted:,} admitted + {shed:,} shed{reasons} + {account.late:,} late "
        f"+ {account.lost:,} lost, last {number(recent_s)} s"
    )


def _reclaims(cell: CellStatus) -> str:
    silent = f"; {plural(cell.num_hosts_silent, 'host')} fell silent" if cell.num_hosts_silent else ""
    return f"{cell.num_reclaims}{silent}, last {number(cell.recent_s)} s"


def _pool(pool: PoolStatus) -> str:
    words = [f"{number(pool.usable_units)} of {number(pool.units)} units usable on {plural(pool.num_hosts, 'host')}"]
    if pool.unusable_units:
        words.append(f"unusable {counts(pool.unusable_units)}")
    if pool.idle_causes:
        words.append(f"idle by {counts(pool.idle_causes)}")
    words.append(f"beside them {number(pool.cpu_cores)} cores and {size(pool.memory_bytes)}")
    if pool.noticed_units:
        words.append(f"{number(pool.noticed_units)} announced to go")
    if pool.expected_survival_s is not None:
        words.append(f"expected to stay {age(pool.expected_survival_s)}")
    if pool.bottleneck:
        words.append(f"bottleneck {pool.bottleneck}")
    return "; ".join(words)


def _route(cell: CellStatus) -> Iterator[str]:
    for route in cell.routes:
        failed = f", {route.num_late} late, {route.num_lost} lost" if route.num_late or route.num_lost else ""
        yield f"{route.route} {plural(route.num_replicas, 'replica')}, pressure {route.pressure:.2f}{failed}"


def _reporters(reporters: list[ReporterStatus]) -> Sentence:
    num_routers = sum(reporter.part == "router" for reporter in reporters)
    told = f"{plural(num_routers, 'router')}, {plural(len(reporters) - num_routers, 'replica')}"
    silent = [f"{reporter.source} for {age(reporter.age_s)}" for reporter in reporters if reporter.is_silent]
    return (
        Sentence("reporting", f"{told}; silent: {', '.join(silent)}", "bad") if silent else Sentence("reporting", told)
    )
