"""What a person sees while the demo runs: on a terminal what `intertidal status` shows, in a pipe one line a second."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from ops.demo.ledger import Ledger
from ops.demo.report import is_late
from ops.status.build import cells_of
from ops.status.facts import Facts
from ops.status.model import CellStatus
from ops.status.parts import at_time
from ops.status.sentences import Sentence
from ops.status.words import counts, plural

if TYPE_CHECKING:
    from rich.console import Group

_RECENT_MS = 2_000
_REPORTERS_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class CellGlance:
    """One cell's target and why it is there."""

    cell: str
    candidate_target: int
    reason: str
    usable_units: float


@dataclass(frozen=True, kw_only=True)
class Glance:
    """The pipeline in the last seconds; ``statuses`` is what its windows, targets and intervals say of each cell."""

    now: datetime
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
    statuses: tuple[CellStatus, ...] = ()

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


def glance(ledger: Ledger, facts: Facts, *, now_ms: int, start_ms: int, phase: str, restarts: dict[str, int]) -> Glance:
    """The last two seconds of a pipeline, by the topics; reporters long gone are forgotten."""
    facts.forget_reporters(now_ms - _REPORTERS_MS)
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
            if item.lever != "rma":
                continue
            units[item.state] += item.units
            if item.state == "shed":
                shed[item.reason] += item.units
    return Glance(
        now=at_time(now_ms),
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
        statuses=tuple(cells_of(facts, now_ms=now_ms)),
    )


@contextmanager
def live_view() -> Iterator[Callable[[Glance], None]]:
    """Yields a function that shows a glance: in place on a terminal, as a line elsewhere."""
    if not sys.stdout.isatty():
        yield lambda seen: print(seen.line(), flush=True)
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        yield lambda seen: live.update(in_full(seen), refresh=True)


def in_full(seen: Glance) -> "Group":
    """A glance on a terminal: the run's own figures, then each cell."""
    from rich.console import Group
    from rich.text import Text

    from ops.status.render import cell_block, fact_table

    return Group(
        Text(f"Intertidal, {seen.elapsed_s:.0f} s, {seen.phase}", style="bold"),
        fact_table(_sentences(seen)),
        *(part for cell in seen.statuses for part in (Text(), cell_block(cell, now=seen.now))),
    )


def _sentences(seen: Glance) -> Iterator[Sentence]:
    latency = "" if seen.p99_ms is None else f", p50 {seen.p50_ms:.0f} ms, p99 {seen.p99_ms:.0f} ms"
    yield Sentence("results", f"{seen.requests_per_s:.1f} per second{latency}, last {_RECENT_MS // 1_000} s")
    shed = f"{sum(seen.shed.values()):,} shed" + (f" ({counts(seen.shed)})" if seen.shed else "")
    yield Sentence(
        "extras", f"{seen.admitted:,} ranked, {shed}, {seen.pending:,} pending, last {_RECENT_MS // 1_000} s"
    )
    late = plural(seen.late, "base answer")
    yield Sentence("late", f"{late}, last {_RECENT_MS // 1_000} s", "bad" if seen.late else "plain")
    yield Sentence("reclaims", f"{seen.num_reclaims} in the whole run")
    if seen.restarts:
        yield Sentence("restarted", ", ".join(f"{name} {times} times" for name, times in seen.restarts.items()), "bad")


def _cells(ledger: Ledger) -> Iterator[CellGlance]:
    for cell, targets in sorted(ledger.targets.items()):
        target = targets[max(targets)]
        units = sum(
            max(changes, key=lambda change: change.time_ms).usable_units
            for (host_cell, _), changes in ledger.offers.items()
            if host_cell == cell
        )
        yield CellGlance(cell=cell, candidate_target=target.candidate_target, reason=target.reason, usable_units=units)
