"""One look at a pipeline, put together from what was read of it. Pure: the time is given."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ops.status.cells import cell_status
from ops.status.facts import Facts
from ops.status.model import (
    CellStatus,
    DeadLetterStatus,
    ReplayStatus,
    StalestStatus,
    Status,
    UnreadableStatus,
)
from ops.status.parts import MS_PER_S, Part, PartitionFacts, at_time, part_status, partition_status, position
from ops.status.verdict import (
    GROWING_S,
    cell_troubles,
    part_troubles,
    pipeline_troubles,
    topic_troubles,
    verdict,
)
from schemas.settings import TimeSettings
from schemas.topics import RANKING_REQUESTS, Namespace

News = Literal["capacity", "latency", "target"]


@dataclass(frozen=True, kw_only=True)
class PartFacts:
    """What the broker says of one part's group on its topic."""

    part: Part
    num_members: int | None
    partitions: Sequence[PartitionFacts]


@dataclass(frozen=True, kw_only=True)
class DeadLetterFacts:
    """Dead letters kept of one topic, how many of them are open, and the append time of the newest."""

    topic: str
    count: int
    num_open: int
    newest_ms: int | None


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Everything that was read in one look."""

    facts: Facts
    parts: Sequence[PartFacts] = ()
    dead_letters: Sequence[DeadLetterFacts] = ()
    num_letters_before: Mapping[str, int] = field(default_factory=dict)
    replays: Sequence[ReplayStatus] = ()


def build_status(readings: Readings, namespace: Namespace, *, time: TimeSettings, now_ms: int) -> Status:
    """Status at ``now_ms``, or at the newest append time where that is later.

    A clock of ours that is behind the broker's is no reason to call anything younger than it is.
    """
    facts = readings.facts
    newest_ms = max(
        (facts.newest_append_ms, *(known.newest_ms or 0 for part in readings.parts for known in part.partitions))
    )
    now_ms = max(now_ms, newest_ms)
    cells = list(cells_of(facts, now_ms=now_ms))
    window_ms = pipeline_window_ms(facts, default=time.window_ms)
    parts = [
        part_status(
            known.part,
            namespace.topic(known.part.topic),
            [
                partition_status(
                    known.part, partition, now_ms=now_ms, window_ms=window_ms, lateness_ms=time.lateness_ms
                )
                for partition in known.partitions
            ],
            num_members=known.num_members,
        )
        for known in readings.parts
    ]
    dead_letters = [_dead_letters(letters, readings, now_ms=now_ms) for letters in readings.dead_letters]
    unreadable = [
        UnreadableStatus(topic=topic, count=count, example=facts.unreadable_example[topic])
        for topic, count in sorted(facts.unreadable.items())
    ]
    has_requests = any(
        partition.end > partition.low
        for known in readings.parts
        if known.part.topic is RANKING_REQUESTS
        for partition in known.partitions
    )
    troubles = [
        *pipeline_troubles(
            has_cells=any(cell.state != "retired" for cell in cells), newest_ms=newest_ms or None, now_ms=now_ms
        )
    ]
    for known, status in zip(readings.parts, parts, strict=True):
        positions = [position(known.part, p.committed, p.metadata, window_ms=window_ms) for p in known.partitions]
        troubles += part_troubles(known.part, status, positions)
    not_running = {status.part for status in parts if status.num_members == 0}
    for cell in cells:
        troubles += cell_troubles(
            cell,
            now_ms=now_ms,
            lateness_ms=time.lateness_ms,
            has_requests=has_requests,
            not_running=not_running,
        )
    troubles += topic_troubles(dead_letters, unreadable, now_ms=now_ms)
    return Status(
        version=1,
        namespace=namespace.prefix,
        time=at_time(now_ms),
        newest=at_time(newest_ms) if newest_ms else None,
        verdict=verdict(troubles, cells=cells, parts=parts),
        troubles=troubles,
        cells=cells,
        stalest=stalest(cells, now_ms=now_ms),
        parts=parts,
        dead_letters=dead_letters,
        unreadable=unreadable,
        replays=list(readings.replays),
    )


def cells_of(facts: Facts, *, now_ms: int) -> Iterator[CellStatus]:
    """Each declared cell, in order of their names."""
    for name, cell in sorted(facts.cells.items()):
        if cell.declaration is not None:
            yield cell_status(name, cell, cell.declaration, now_ms=now_ms)


def stalest(cells: Iterable[CellStatus], *, now_ms: int) -> StalestStatus | None:
    """The oldest of what is the last of its kind in a declared cell."""
    found = None
    for cell in cells:
        if cell.state != "declared":
            continue
        ends: tuple[tuple[News, datetime | None], ...] = (
            ("capacity", cell.capacity_window_end),
            ("latency", cell.latency_window_end),
            ("target", None if cell.target is None else cell.target.window_end),
        )
        for what, end in ends:
            if end is None:
                continue
            age_s = round(max(0.0, now_ms / MS_PER_S - end.timestamp()), 3)
            if found is None or age_s > found.age_s:
                found = StalestStatus(cell=cell.cell, what=what, age_s=age_s)
    return found


def pipeline_window_ms(facts: Facts, *, default: int) -> int:
    """Length of the windows, as the cells are declared: who looks may not have the pipeline's settings."""
    declared = [cell.declaration.window_ms for cell in facts.cells.values() if cell.declaration is not None]
    return declared[0] if declared and declared[0] > 0 else default


def _dead_letters(letters: DeadLetterFacts, readings: Readings, *, now_ms: int) -> DeadLetterStatus:
    """Growing: a letter came since the last look, or lately, and some are open."""
    is_young = letters.newest_ms is not None and now_ms - letters.newest_ms <= GROWING_S * MS_PER_S
    more = letters.count > readings.num_letters_before.get(letters.topic, letters.count)
    return DeadLetterStatus(
        topic=letters.topic,
        count=letters.count,
        num_open=letters.num_open,
        newest=None if letters.newest_ms is None else at_time(letters.newest_ms),
        is_growing=letters.num_open > 0 and (is_young or more),
    )
