"""What happened in a simulation, by cell and window, as `ops.twin.metrics` has it.

Counts, percentiles and accounts are those that the controller saw; what was earned, and which answers were late, is
noted result by result.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ops.simulator.scenario_model import Scenario
from ops.twin.metrics import CellRun, Earned, LeverGrant, PoolTick, RouteTick, Tick
from ops.twin.requests.callers import People, Person
from ranking.models.topk import top_k
from schemas.histogram import ExponentialHistogram
from schemas.records import (
    CandidateTarget,
    ControlWindow,
    HistogramFields,
    LatencyWindow,
    PoolSnapshot,
    PoolWindow,
    RankingResult,
    RankingWork,
    RouteWindow,
)
from schemas.records.fields import INT64_BYTES

_MICRO = 1e6


@dataclass(slots=True)
class _Worth:
    """Values of one window, micro-units: what base work alone leads to, and what each lever added."""

    base: int = 0
    wide: int = 0
    upgraded: int = 0


@dataclass(slots=True)
class _Seen:
    """What was said of one cell, by window."""

    capacity: dict[int, ControlWindow] = field(default_factory=dict)
    latency: dict[int, LatencyWindow] = field(default_factory=dict)
    targets: dict[int, CandidateTarget] = field(default_factory=dict)
    grants: dict[tuple[int, str], PoolSnapshot] = field(default_factory=dict)
    worth: dict[int, _Worth] = field(default_factory=lambda: defaultdict(_Worth))


class Tally:
    """Notes what happens; ``runs`` puts it together at the end."""

    def __init__(self, scenario: Scenario, people: People, *, zero_ms: int) -> None:
        self._scenario = scenario
        self._people = people.by_user
        self._window_ms = scenario.time.window_ms
        self._zero_ms = zero_ms
        self._cells = {cell.name: _Seen() for cell in scenario.cells}
        self.num_results = 0
        self.num_late = 0
        self.num_degraded = 0
        # Extra candidates by state at the time of the result, and all that were assigned.
        self.items: Counter[str] = Counter()
        self.assigned = 0

    def note_result(self, result: RankingResult) -> None:
        """A router has put a result together."""
        self.num_results += 1
        self.num_degraded += result.degraded
        self.num_late += result.late
        self.assigned += result.dose
        for item in result.optional:
            if item.lever == "rma":
                self.items[item.state] += item.units
        worth = self._cells[result.cell].worth[result.intake_ms // self._window_ms]
        if result.degraded or result.status == "error":
            return
        person = self._people[result.user_id]
        base = person.base_worth_micro(result.num_base_candidates, len(result.ad_ids) // INT64_BYTES)
        worth.base += base
        if result.routes == ["baseline"]:
            return
        weaker = person.worth_micro(result.ad_ids) if result.flipped is None else self._weaker_micro(person, result)
        worth.wide += weaker - base
        worth.upgraded += person.worth_micro(result.ad_ids) - weaker

    def upgraded(self, work: RankingWork) -> RankingWork:
        """Work on base candidates with the scores that the stronger model gives them."""
        scores_N = self._people[work.user_id].upgraded_N[: len(work.ad_ids) // INT64_BYTES]
        return replace(work, retrieval_scores=scores_N.tobytes())

    def _weaker_micro(self, person: Person, result: RankingResult) -> int:
        """What an upgraded result would be worth without: base candidates by the weaker model, with the same extras."""
        num_base = result.num_base_candidates
        scored = [slice(0, num_base)]
        first = num_base
        for item in result.optional:
            if item.lever != "rma":
                continue
            if item.state == "admitted":
                scored.append(slice(first, first + item.units))
            first += item.units
        scores_N = np.concatenate([person.believed_N[span] for span in scored])
        ids_N = np.concatenate([person.ad_ids_N[span] for span in scored])
        best = top_k(scores_N, ids_N, len(result.ad_ids) // INT64_BYTES)
        return person.worth_micro(ids_N[best].astype("<i8").tobytes())

    def note_window(self, window: ControlWindow) -> None:
        """A window was closed."""
        seen = self._cells[window.cell]
        if window.capacity is not None:
            seen.capacity[window.window_index] = window
        if window.latency is not None:
            seen.latency[window.window_index] = window.latency

    def note_record(self, record: Struct) -> None:
        """A controller has spoken."""
        if isinstance(record, CandidateTarget):
            self._cells[record.cell].targets[record.window_index] = record
        elif isinstance(record, PoolSnapshot):
            self._cells[record.cell].grants[record.window_index, record.accelerator] = record

    def latency_windows(self, cell: str) -> dict[int, LatencyWindow]:
        """Every latency window of a cell, by index."""
        return self._cells[cell].latency

    def targets(self, cell: str) -> dict[int, CandidateTarget]:
        """Every target of a cell, by the window that it was made of."""
        return self._cells[cell].targets

    def runs(self, *, until_ms: int) -> list[CellRun]:
        """Every window of every cell that has ended by ``until_ms``, in order."""
        return [CellRun(cell=name, ticks=self._ticks(name, seen, until_ms)) for name, seen in self._cells.items()]

    def _ticks(self, cell: str, seen: _Seen, until_ms: int) -> list[Tick]:
        both = sorted(seen.capacity.keys() & seen.latency.keys())
        return [self._tick(cell, seen, index) for index in both if (index + 1) * self._window_ms <= until_ms]

    def _tick(self, cell: str, seen: _Seen, index: int) -> Tick:
        window, latency, worth = seen.capacity[index], seen.latency[index], seen.worth[index]
        assert window.capacity is not None
        # The target that is in force at this window's end was made of windows before it.
        target = seen.targets.get(index - 1)
        limits = window.capacity.limits
        pools = window.capacity.pools
        usable = sum(_usable_micro(pool) for pool in pools) / _MICRO
        optional = [route for route in latency.routes if route.part == "ranker" and route.route != "baseline"]
        num_upgraded = sum(segment.num_routed for segment in latency.segments)
        return Tick(
            cell=cell,
            at_s=((index + 1) * self._window_ms - self._zero_ms) / 1_000,
            pools=[_pool_tick(pool, seen.grants.get((index, pool.accelerator))) for pool in pools],
            candidate_target=limits.base_candidates if target is None else target.candidate_target,
            reason="none yet" if target is None else target.reason,
            coverage_target=0.0 if target is None else target.coverage,
            coverage_reason="" if target is None else target.coverage_reason,
            num_requests=latency.num_requests,
            num_upgraded=num_upgraded,
            coverage=num_upgraded / latency.num_requests if latency.num_requests else 0.0,
            latency_p99_ms=_p99_ms(latency.latency),
            upstream_p99_ms=None if latency.upstream is None else _p99_ms(latency.upstream),
            routes=[self._route_tick(route, latency) for route in latency.routes if route.part == "router"],
            accounts=latency.accounts,
            num_base_late=latency.num_base_late,
            num_reclaims=sum(pool.num_reclaims for pool in pools),
            usable_unit_s=usable * self._window_ms / 1_000,
            busy_unit_s=sum(route.busy_us for route in optional) / _MICRO,
            base_value_micro=worth.base,
            earned=[
                Earned(lever="rma", value_micro=worth.wide),
                Earned(lever="sbm", value_micro=worth.upgraded),
            ],
        )

    def _route_tick(self, route: RouteWindow, latency: LatencyWindow) -> RouteTick:
        """As the routers saw the route; its load is what its replicas were busy."""
        busy_us = num_replicas = 0
        for each in latency.routes:
            if each.part == "ranker" and each.route == route.route:
                busy_us, num_replicas = each.busy_us, each.num_reporters
        return RouteTick(
            route=route.route,
            p99_ms=_p99_ms(route.latency),
            load=busy_us / (num_replicas * self._window_ms * 1_000) if num_replicas else 0.0,
        )


def _pool_tick(pool: PoolWindow, snapshot: PoolSnapshot | None) -> PoolTick:
    levers = [] if snapshot is None else snapshot.levers
    return PoolTick(
        accelerator=pool.accelerator,
        idle_units=pool.units_micro / _MICRO,
        usable_units=_usable_micro(pool) / _MICRO,
        levers=[
            LeverGrant(lever=grant.lever, units=grant.units_micro / _MICRO, ready_units=grant.units_micro / _MICRO)
            for grant in levers
        ],
    )


def _usable_micro(pool: PoolWindow) -> int:
    return pool.units_micro - sum(reason.units_micro for reason in pool.unusable)


def _p99_ms(packed: HistogramFields) -> float | None:
    histogram = ExponentialHistogram.from_fields(**{name: getattr(packed, name) for name in packed.__struct_fields__})
    return histogram.quantile(0.99)
