"""What a simulation says of each window: one record, filled alike by both levels of detail. Pure.

Equal runs give equal bytes: counts are integers, values micro-units of currency, and no sum depends on an order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from schemas.records import Account, ShedUnits
from schemas.records.fields import Lever, Route

Detail = Literal["tick", "request"]


class LeverGrant(Struct, frozen=True, kw_only=True):
    """Units of a pool that a lever holds, and those of them that have started up."""

    lever: Lever
    units: float
    ready_units: float


class PoolTick(Struct, frozen=True, kw_only=True):
    """One pool at a window's end; ``usable_units`` are ``idle_units`` less what is idle but of no use."""

    accelerator: str
    idle_units: float
    usable_units: float
    levers: list[LeverGrant] = []


class RouteTick(Struct, frozen=True, kw_only=True):
    """One route in a window; ``load`` is the share of its ready capacity that was busy."""

    route: Route
    p99_ms: float | None
    load: float


class Earned(Struct, frozen=True, kw_only=True):
    """What a lever added to what base work alone would have earned, by the truth of the world."""

    lever: Lever
    value_micro: int


class Tick(Struct, frozen=True, kw_only=True):
    """One window of one cell, or ``num_windows`` of them in a row.

    ``at_s`` is the end of the (last) window after the end of the warm-up. Targets are those in force at that end, made
    from windows before it. ``coverage`` is the share of the requests that was routed to the powerful model. Counts and
    values are sums over the windows, percentiles the worst of them, pools as at the end; ``usable_unit_s`` and
    ``busy_unit_s`` are unit-seconds that were usable, and that did optional work which counted.
    """

    cell: str
    at_s: float
    num_windows: int = 1
    pools: list[PoolTick]
    candidate_target: int
    reason: str
    coverage_target: float
    coverage_reason: str
    num_requests: int
    num_upgraded: int
    coverage: float
    latency_p99_ms: float | None
    upstream_p99_ms: float | None
    routes: list[RouteTick]
    accounts: list[Account]
    num_base_late: int
    num_reclaims: int
    usable_unit_s: float
    busy_unit_s: float
    base_value_micro: int
    earned: list[Earned]


class CellRun(Struct, frozen=True, kw_only=True):
    """One cell from the start of the warm-up to the end."""

    cell: str
    ticks: list[Tick]


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over cells and windows after the warm-up; worst p99 in milliseconds; values in currency.

    ``used_share`` is ``busy_unit_s`` over ``usable_unit_s``, ``coverage`` upgraded requests over all.
    """

    num_cells: int
    num_requests: int
    num_base_late: int
    num_reclaims: int
    usable_unit_h: float
    busy_unit_h: float
    used_share: float
    offered: dict[str, int]
    admitted: dict[str, int]
    shed: dict[str, dict[str, int]]
    coverage: float
    worst_p99_ms: float | None
    base_value: float
    earned: dict[str, float]
    value: float


class Run(Struct, frozen=True, kw_only=True):
    """One simulation: ``controller`` is what steered it, ``scenario`` and ``seed`` repeat it."""

    scenario: str
    detail: Detail
    seed: int
    controller: str
    window_ms: int
    duration_s: float
    totals: Totals
    cells: list[CellRun]


def encode_run(run: Run) -> bytes:
    """JSON with keys in the order of the fields, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n"


def merged(ticks: Sequence[Tick]) -> Tick:
    """Consecutive windows of one cell as one record: at least one, in the order of time."""
    last = ticks[-1]
    num_requests = sum(tick.num_requests for tick in ticks)
    num_upgraded = sum(tick.num_upgraded for tick in ticks)
    return msgspec.structs.replace(
        last,
        num_windows=sum(tick.num_windows for tick in ticks),
        num_requests=num_requests,
        num_upgraded=num_upgraded,
        coverage=num_upgraded / num_requests if num_requests else 0.0,
        latency_p99_ms=_worst(tick.latency_p99_ms for tick in ticks),
        upstream_p99_ms=_worst(tick.upstream_p99_ms for tick in ticks),
        routes=_merged_routes(ticks),
        accounts=merged_accounts([account for tick in ticks for account in tick.accounts]),
        num_base_late=sum(tick.num_base_late for tick in ticks),
        num_reclaims=sum(tick.num_reclaims for tick in ticks),
        usable_unit_s=sum(tick.usable_unit_s for tick in ticks),
        busy_unit_s=sum(tick.busy_unit_s for tick in ticks),
        base_value_micro=sum(tick.base_value_micro for tick in ticks),
        earned=_merged_earned(ticks),
    )


def thinned(ticks: Sequence[Tick], *, most: int) -> list[Tick]:
    """At most ``most`` records, each of equally many windows but for the last."""
    size = -(-len(ticks) // most)
    if size <= 1:
        return list(ticks)
    return [merged(ticks[start : start + size]) for start in range(0, len(ticks), size)]


def totals_of(cells: Sequence[CellRun]) -> Totals:
    """Totals over the windows that end after the warm-up."""
    ticks = [tick for cell in cells for tick in cell.ticks if tick.at_s > 0.0]
    accounts = merged_accounts([account for tick in ticks for account in tick.accounts])
    num_requests = sum(tick.num_requests for tick in ticks)
    usable_unit_h = sum(tick.usable_unit_s for tick in ticks) / 3_600.0
    busy_unit_h = sum(tick.busy_unit_s for tick in ticks) / 3_600.0
    base_micro = sum(tick.base_value_micro for tick in ticks)
    earned: dict[str, float] = {each.lever: each.value_micro / 1e6 for each in _merged_earned(ticks)}
    return Totals(
        num_cells=len(cells),
        num_requests=num_requests,
        num_base_late=sum(tick.num_base_late for tick in ticks),
        num_reclaims=sum(tick.num_reclaims for tick in ticks),
        usable_unit_h=usable_unit_h,
        busy_unit_h=busy_unit_h,
        used_share=busy_unit_h / usable_unit_h if usable_unit_h else 0.0,
        offered={account.lever: account.offered for account in accounts},
        admitted={account.lever: account.admitted for account in accounts},
        shed={account.lever: {shed.reason: shed.units for shed in account.sheds} for account in accounts},
        coverage=sum(tick.num_upgraded for tick in ticks) / num_requests if num_requests else 0.0,
        worst_p99_ms=_worst(tick.latency_p99_ms for tick in ticks),
        base_value=base_micro / 1e6,
        earned=earned,
        value=base_micro / 1e6 + sum(earned.values()),
    )


def summed(totals: Sequence[Totals]) -> Totals:
    """Totals of several cells as one, in the order given."""
    usable_unit_h = sum(each.usable_unit_h for each in totals)
    busy_unit_h = sum(each.busy_unit_h for each in totals)
    num_requests = sum(each.num_requests for each in totals)
    reasons = _keys(each.shed for each in totals)
    earned = {lever: sum(each.earned.get(lever, 0.0) for each in totals) for lever in _keys(t.earned for t in totals)}
    base_value = sum(each.base_value for each in totals)
    return Totals(
        num_cells=sum(each.num_cells for each in totals),
        num_requests=num_requests,
        num_base_late=sum(each.num_base_late for each in totals),
        num_reclaims=sum(each.num_reclaims for each in totals),
        usable_unit_h=usable_unit_h,
        busy_unit_h=busy_unit_h,
        used_share=busy_unit_h / usable_unit_h if usable_unit_h else 0.0,
        offered=_counts(each.offered for each in totals),
        admitted=_counts(each.admitted for each in totals),
        shed={lever: _counts(each.shed.get(lever, {}) for each in totals) for lever in reasons},
        coverage=sum(each.coverage * each.num_requests for each in totals) / num_requests if num_requests else 0.0,
        worst_p99_ms=_worst(each.worst_p99_ms for each in totals),
        base_value=base_value,
        earned=earned,
        value=base_value + sum(earned.values()),
    )


def merged_accounts(accounts: Sequence[Account]) -> list[Account]:
    """Sums by lever, reasons of sheds in the order of their names."""
    return [
        _sum_of([account for account in accounts if account.lever == lever])
        for lever in sorted({account.lever for account in accounts})
    ]


def _keys(dicts: Iterable[Mapping[str, object]]) -> list[str]:
    return sorted({key for each in dicts for key in each})


def _counts(dicts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    listed = list(dicts)
    return {key: sum(each.get(key, 0) for each in listed) for key in _keys(listed)}


def _sum_of(accounts: Sequence[Account]) -> Account:
    sheds: dict[str, tuple[int, int]] = {}
    for shed in (shed for account in accounts for shed in account.sheds):
        units, value_micro = sheds.get(shed.reason, (0, 0))
        sheds[shed.reason] = units + shed.units, value_micro + shed.value_micro
    counts = ("offered", "admitted", "late", "lost")
    return Account(
        lever=accounts[0].lever,
        sheds=[
            ShedUnits(reason=reason, units=units, value_micro=value_micro)
            for reason, (units, value_micro) in sorted(sheds.items())
        ],
        **{name: sum(getattr(account, name) for account in accounts) for name in counts},
        **{
            f"{name}_value_micro": sum(getattr(account, f"{name}_value_micro") for account in accounts)
            for name in counts
        },
    )


def _merged_routes(ticks: Sequence[Tick]) -> list[RouteTick]:
    """The worst p99 and the mean load of each route of the last window."""
    merged_routes = []
    for route in ticks[-1].routes:
        same = [each for tick in ticks for each in tick.routes if each.route == route.route]
        load = sum(each.load for each in same) / len(same)
        merged_routes.append(RouteTick(route=route.route, p99_ms=_worst(each.p99_ms for each in same), load=load))
    return merged_routes


def _merged_earned(ticks: Sequence[Tick]) -> list[Earned]:
    sums: dict[Lever, int] = {}
    for each in (each for tick in ticks for each in tick.earned):
        sums[each.lever] = sums.get(each.lever, 0) + each.value_micro
    return [Earned(lever=lever, value_micro=value_micro) for lever, value_micro in sorted(sums.items())]


def _worst(values_ms: Iterable[float | None]) -> float | None:
    return max((value for value in values_ms if value is not None), default=None)
