"""Everything that a report sums up while the windows of a range stream by. Pure; what it holds does not grow with them.

What grows is by cell, pool, arm and phase; and a list of the times at which capacity was taken back.
"""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Final

from ops.report.balance import BalanceTally
from ops.report.capacity import LEVER_BY_ROUTE, MS_PER_H, CellCapacity, PreemptionSizes, is_taken
from ops.report.latency import PHASES, CellPhases, Histograms
from ops.report.model import Covered, Phase
from ops.report.optional_work import ArmTally, SheddingTally
from ops.report.series import SeriesTally
from schemas.histogram import ExponentialHistogram
from schemas.records import ControlWindow

_MEASURED: Final = ("capacity", "latency", "results", "outcomes")


class Tally:
    """Takes in the windows of a range, those of one cell, kind and source partition in their order."""

    def __init__(self, *, since_ms: int | None, until_ms: int | None, cells: frozenset[str] = frozenset()) -> None:
        self._since_ms, self._until_ms, self._wanted = since_ms, until_ms, cells
        self._last: dict[tuple[str, str, int], int] = {}
        self._first_ms: int | None = None
        self._end_ms: int | None = None
        self._counts: Counter[str] = Counter()
        self._cells: defaultdict[str, CellCapacity] = defaultdict(CellCapacity)
        self._phases: dict[str, CellPhases] = {}
        self.histograms: Histograms = defaultdict(ExponentialHistogram)
        self.phase_counts: dict[Phase, Counter[str]] = {phase: Counter() for phase in PHASES}
        self.sizes = PreemptionSizes()
        self.balance = BalanceTally()
        self.shedding = SheddingTally()
        self.arms = ArmTally()
        self.series = SeriesTally()

    def add(self, window: ControlWindow) -> bool:
        """Take in a window; says whether it is of the range and was not there already."""
        if window.kind not in _MEASURED or not self._is_wanted(window):
            return False
        # Ingest says the windows around a crash again, the same to the byte.
        place = window.cell, window.kind, window.source_partition
        if window.window_index <= self._last.get(place, -1):
            self._counts["repeated"] += 1
            return False
        self._last[place] = window.window_index
        self._counts["windows"] += 1
        self._first_ms = window.start_ms if self._first_ms is None else min(self._first_ms, window.start_ms)
        self._end_ms = window.end_ms if self._end_ms is None else max(self._end_ms, window.end_ms)
        self.series.add(window)
        phases = self._phases.setdefault(window.cell, CellPhases(self.histograms, self.phase_counts))
        self._add_capacity(window, phases)
        self._add_latency(window, phases)
        self._add_measured(window, phases)
        return True

    def close(self) -> None:
        """No more windows come."""
        for phases in self._phases.values():
            phases.settle_all()

    @property
    def cells(self) -> list[CellCapacity]:
        """Capacity of each cell, in order of their names."""
        return [self._cells[name] for name in sorted(self._cells)]

    def covered(self, *, namespace: str, num_unreadable: int) -> Covered:
        """What was taken in."""
        return Covered(
            namespace=namespace,
            cells=sorted(self._cells),
            since=_time(self._first_ms),
            until=_time(self._end_ms),
            hours=max((cell.covered_ms for cell in self._cells.values()), default=0) / MS_PER_H,
            num_windows=self._counts["windows"],
            num_repeated_windows=self._counts["repeated"],
            num_unreadable=num_unreadable,
            num_requests=self._counts["requests"],
            num_results=self._counts["results"],
            num_outcomes=self._counts["outcomes"],
            num_late_outcomes=self._counts["late_outcomes"],
            num_expired_outcomes=self._counts["expired_outcomes"],
        )

    def _is_wanted(self, window: ControlWindow) -> bool:
        return (
            (not self._wanted or window.cell in self._wanted)
            and (self._since_ms is None or window.start_ms >= self._since_ms)
            and (self._until_ms is None or window.end_ms <= self._until_ms)
        )

    def _add_capacity(self, window: ControlWindow, phases: CellPhases) -> None:
        if window.capacity is None:
            return
        self._cells[window.cell].add(window)
        self.sizes.add(window.capacity)
        self.balance.add(window.capacity)
        phases.note_capacity(window.window_index, is_taken=is_taken(window.capacity))

    def _add_latency(self, window: ControlWindow, phases: CellPhases) -> None:
        latency = window.latency
        if latency is None:
            return
        cell = self._cells[window.cell]
        for route in latency.routes:
            lever = LEVER_BY_ROUTE.get(route.route)
            if lever is not None and route.part == "ranker":
                cell.busy_us[lever] += route.busy_us
                cell.units_done[lever] += route.units_done
        self.shedding.add(latency.accounts)
        self._counts["requests"] += latency.num_requests
        phases.note_counts(
            window.window_index,
            {
                "num_windows": 1,
                "num_requests": latency.num_requests,
                "num_base_late": latency.num_base_late,
                "num_errors": latency.num_errors,
            },
        )

    def _add_measured(self, window: ControlWindow, phases: CellPhases) -> None:
        # A cell of which nothing but its measurement is in the range is named too.
        self._cells[window.cell]
        if window.results is not None:
            self._counts["results"] += window.results.num_results
            for guard in window.results.guards:
                self.arms.add(guard)
                phases.note_arm(window.window_index, guard.arm, guard.latency)
        if window.outcomes is not None:
            self._counts["outcomes"] += window.outcomes.num_outcomes
            self._counts["late_outcomes"] += window.outcomes.num_late
            self._counts["expired_outcomes"] += window.outcomes.num_expired


def _time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1e3, UTC)
