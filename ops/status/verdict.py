"""What of a pipeline is stale or wrong, and the one line that says so. Pure."""

from collections.abc import Collection, Iterator, Sequence

from ops.status.measured import measured_troubles
from ops.status.model import CellStatus, DeadLetterStatus, LatencyStatus, PartStatus, Trouble, UnreadableStatus, Verdict
from ops.status.parts import MS_PER_S, Part, Position
from ops.status.words import age, number, plural

# As long as a target stays valid by default: by then routers are at base.
OVERDUE_WINDOWS = 3
# A dead letter younger than this says that its cause is still there.
GROWING_S = 300.0
# Clock records come once a second wherever ingest runs, so silence everywhere means something by then.
NOTHING_NEW_S = 30.0
_NAMED_REPORTERS = 6

# What has yet to begin, as against what has stopped.
_WAITING = frozenset({"no_cell", "no_window", "no_target"})


def cell_troubles(
    cell: CellStatus, *, now_ms: int, lateness_ms: int, has_requests: bool, not_running: Collection[str] = ()
) -> Iterator[Trouble]:
    """What is stale about one cell, nothing of one that is retired; ``not_running`` are parts that nobody runs."""
    if cell.state == "upcoming":
        yield Trouble(kind="no_window", subject=cell.cell, detail="declared, and in force in a window or two")
    if cell.state != "declared":
        return
    overdue_ms = OVERDUE_WINDOWS * cell.window_ms + lateness_ms
    ends = {"capacity": cell.capacity_window_end, "latency": cell.latency_window_end}
    missing = [kind for kind, end in ends.items() if end is None]
    if missing:
        yield Trouble(
            kind="no_window",
            subject=cell.cell,
            detail=f"no {' and no '.join(missing)} window yet: ingest closes the first{_nobody('ingest', not_running)}",
        )
    for kind, end in ends.items():
        age_ms = 0 if end is None else now_ms - round(end.timestamp() * MS_PER_S)
        if age_ms > overdue_ms:
            yield Trouble(
                kind="window_overdue",
                subject=cell.cell,
                detail=f"last {kind} window ended {age(age_ms / MS_PER_S)} ago, "
                f"{age_ms // max(1, cell.window_ms)} windows of {cell.window_ms / MS_PER_S:g} s",
            )
    if cell.target is None and not missing:
        detail = f"no target yet: control makes the first{_nobody('control', not_running)}"
        yield Trouble(kind="no_target", subject=cell.cell, detail=detail)
    if cell.target is not None and cell.target.is_expired:
        yield Trouble(
            kind="target_expired",
            subject=cell.cell,
            detail=f"target expired {age(-cell.target.valid_for_s)} ago: base work only",
        )
    if cell.not_heard is not None:
        yield Trouble(kind="two_controllers", subject=cell.cell, detail=f"{cell.not_heard}: it is not heard")
    if has_requests and cell.latency is not None and cell.latency.num_routers == 0:
        yield Trouble(kind="no_router", subject=cell.cell, detail="no router reported in the last latency window")
    if cell.latency is not None:
        yield from _latency_troubles(cell, cell.latency)
    if cell.measured is not None:
        yield from measured_troubles(cell.cell, cell.measured)
    yield from _silent_troubles(cell)


def _silent_troubles(cell: CellStatus) -> Iterator[Trouble]:
    silent = [reporter for reporter in cell.reporters if reporter.is_silent]
    if silent:
        named = ", ".join(f"{reporter.source} for {age(reporter.age_s)}" for reporter in silent[:_NAMED_REPORTERS])
        more = f" and {len(silent) - _NAMED_REPORTERS} more" if len(silent) > _NAMED_REPORTERS else ""
        detail = f"{len(silent)} of {plural(len(cell.reporters), 'reporter')} silent: {named}{more}"
        yield Trouble(kind="reporter_silent", subject=cell.cell, detail=detail)


def _latency_troubles(cell: CellStatus, seen: LatencyStatus) -> Iterator[Trouble]:
    """Late base answers, and a limit that is broken with nothing left to take off; else the loop is at work on it."""
    if seen.num_base_late:
        late = plural(seen.num_base_late, "base answer")
        yield Trouble(kind="base_late", subject=cell.cell, detail=f"{late} late in the last latency window")
    if seen.is_over_limit and cell.target is not None and cell.target.candidates <= cell.target.base_candidates:
        detail = (
            f"p99 {number(seen.p99_ms or 0.0)} ms over the limit of {number(seen.limit_ms or 0.0)} ms at base already"
        )
        yield Trouble(kind="over_limit", subject=cell.cell, detail=detail)


def _nobody(part: str, not_running: Collection[str]) -> str:
    return ", and nobody runs it" if part in not_running else ""


def part_troubles(part: Part, status: PartStatus, positions: Sequence[Position]) -> Iterator[Trouble]:
    """What is wrong with one part on one topic. Opportunistic replicas may be absent: that is what they are."""
    if status.state == "absent" and part.is_needed:
        yield Trouble(kind="part_absent", subject=part.name, detail=status.reason or "")
    if status.state == "stalled":
        yield Trouble(kind="part_stalled", subject=part.name, detail=status.reason or "")
    doubts = {at.doubt: None for at in positions if at.doubt is not None}
    for doubt in doubts:
        yield Trouble(kind="commit_unreadable", subject=part.name, detail=f"{status.topic}: {doubt}")


def topic_troubles(
    dead_letters: Sequence[DeadLetterStatus], unreadable: Sequence[UnreadableStatus], *, now_ms: int
) -> Iterator[Trouble]:
    """Dead letters that still come, and records that this look could not read."""
    for letters in dead_letters:
        if letters.is_growing:
            since_s = None if letters.newest is None else now_ms / MS_PER_S - letters.newest.timestamp()
            newest = "" if since_s is None else f", the newest {age(since_s)} ago"
            yield Trouble(
                kind="dead_letters_growing",
                subject=letters.topic,
                detail=f"{plural(letters.num_open, 'dead letter')}{newest}: `intertidal dlq list` says why",
            )
    for bad in unreadable:
        yield Trouble(
            kind="unreadable",
            subject=bad.topic,
            detail=f"{plural(bad.count, 'unreadable record')} in what was looked at: {bad.example}",
        )


def pipeline_troubles(*, has_cells: bool, newest_ms: int | None, now_ms: int) -> Iterator[Trouble]:
    """What concerns no cell and no part alone."""
    if not has_cells:
        yield Trouble(kind="no_cell", subject="cells", detail="no cell is declared: run `intertidal cells add`")
    if newest_ms is not None and now_ms - newest_ms > NOTHING_NEW_S * MS_PER_S:
        yield Trouble(
            kind="nothing_new",
            subject="topics",
            detail=f"no topic has a record younger than {age((now_ms - newest_ms) / MS_PER_S)}: nothing runs, "
            "or this machine's clock is ahead of the broker's",
        )


def verdict(troubles: Sequence[Trouble], *, cells: Sequence[CellStatus], parts: Sequence[PartStatus]) -> Verdict:
    """The whole in one line; what has stopped counts for more than what has yet to begin."""
    grave = [trouble for trouble in troubles if trouble.kind not in _WAITING]
    listed = grave or list(troubles)
    if not listed:
        return Verdict(state="ok", line=_all_well(cells, parts))
    first = listed[0]
    more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
    return Verdict(state="attention" if grave else "waiting", line=f"{first.subject}: {first.detail}{more}")


def _all_well(cells: Sequence[CellStatus], parts: Sequence[PartStatus]) -> str:
    known_s = [part.lag_s for part in parts if part.lag_s is not None and part.state == "running"]
    declared = sum(cell.state == "declared" for cell in cells)
    return f"{plural(declared, 'cell')}, targets valid, no part behind by more than {max(known_s, default=0.0):.1f} s"
