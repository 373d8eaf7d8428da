"""What a person sees while the demo runs: a table on a terminal, one line a second in a pipe."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ops.demo.ledger import Ledger
from ops.demo.report import is_late

if TYPE_CHECKING:
    from rich.table import Table

_RECENT_MS = 2_000


@dataclass(frozen=True, kw_only=True)
class CellGlance:
    """One cell's target and why it is there."""

    cell: str
    candidate_target: int
    reason: str
    usable_units: float


@dataclass(frozen=True, kw_only=True)
class Glance:
    """The pipeline in the last seconds."""

    elapsed_s: float
    phase: str
    requests_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    admitted: int
    shed: dict[str, int]
    pending: int
    late: int
    cells: tuple[CellGlance, ...]
    num_reclaims: int
    restarts: dict[str, int]

    def line(self) -> str:
        """One line for a pipe."""
        latency = "-" if self.p99_ms is None else f"{self.p50_ms:.0f}/{self.p99_ms:.0f} ms"
        cells = "  ".join(
            f"{cell.cell} {cell.usable_units:g} units target {cell.candidate_target} ({cell.reason})"
            for cell in self.cells
        )
        shed = " ".join(f"{reason}={units}" for reason, units in self.shed.items()) or "0"
        return (
            f"{self.elapsed_s:6.1f} s  {self.phase:<8} {self.requests_per_s:5.1f} req/s  p50/p99 {latency}  {cells}  "
            f"extras admitted {self.admitted} shed {shed}  late {self.late}  reclaims {self.num_reclaims}"
        )


def glance(ledger: Ledger, *, now_ms: int, start_ms: int, phase: str, restarts: dict[str, int]) -> Glance:
    """The last two seconds of a pipeline, by the topics."""
    recent = [seen for seen in ledger.recent_results(now_ms - _RECENT_MS) if seen.append_ms < now_ms]
    taken_ms = [
        seen.append_ms - ledger.requests[seen.record.request_id].append_ms
        for seen in recent
        if seen.record.request_id in ledger.requests
    ]
    percentiles = np.percentile(taken_ms, [50, 99]) if taken_ms else None
    units: Counter[str] = Counter()
    shed: Counter[str] = Counter()
    for seen in recent:
        for item in seen.record.optional:
            units[item.state] += item.units
            if item.state == "shed":
                shed[item.reason] += item.units
    return Glance(
        elapsed_s=(now_ms - start_ms) / 1_000,
        phase=phase,
        requests_per_s=len(recent) / (_RECENT_MS / 1_000),
        p50_ms=None if percentiles is None else float(percentiles[0]),
        p99_ms=None if percentiles is None else float(percentiles[1]),
        admitted=units["admitted"],
        shed=dict(sorted(shed.items())),
        pending=units["pending"],
        late=sum(is_late(ledger, seen) for seen in recent if seen.record.request_id in ledger.requests),
        cells=tuple(_cells(ledger)),
        num_reclaims=sum(change.kind == "reclaim" for changes in ledger.offers.values() for change in changes),
        restarts=restarts,
    )


@contextmanager
def live_view() -> Iterator[Callable[[Glance], None]]:
    """Yields a function that shows a glance: in place on a terminal, as a line elsewhere."""
    if not sys.stdout.isatty():
        yield lambda seen: print(seen.line(), flush=True)
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        yield lambda seen: live.update(_table(seen), refresh=True)


def _table(seen: Glance) -> "Table":
    from rich.table import Table

    table = Table(title=f"Intertidal, {seen.elapsed_s:.0f} s, {seen.phase}", show_header=False, min_width=72)
    table.add_row("requests", f"{seen.requests_per_s:.1f} per second")
    table.add_row("latency", "-" if seen.p99_ms is None else f"p50 {seen.p50_ms:.0f} ms, p99 {seen.p99_ms:.0f} ms")
    for cell in seen.cells:
        table.add_row(
            cell.cell, f"{cell.usable_units:g} idle units, candidate target {cell.candidate_target}: {cell.reason}"
        )
    table.add_row("extras admitted", f"{seen.admitted} candidates in the last 2 s")
    table.add_row("extras shed", ", ".join(f"{units} {reason}" for reason, units in seen.shed.items()) or "none")
    table.add_row("late", f"{seen.late} base answers in the last 2 s")
    table.add_row("reclaims", str(seen.num_reclaims))
    if seen.restarts:
        table.add_row("restarted", ", ".join(f"{name} {times} times" for name, times in seen.restarts.items()))
    return table


def _cells(ledger: Ledger) -> Iterator[CellGlance]:
    for cell, targets in sorted(ledger.targets.items()):
        target = targets[max(targets)]
        units = sum(
            max(changes, key=lambda change: change.time_ms).usable_units
            for (host_cell, _), changes in ledger.offers.items()
            if host_cell == cell
        )
        yield CellGlance(cell=cell, candidate_target=target.candidate_target, reason=target.reason, usable_units=units)
