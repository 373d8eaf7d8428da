"""Which parts read which topics in which group, and how far behind they are. Pure.

Lag in records is from the first offset not done to the end of the partition; lag in seconds is from the append time of
the record there to that of the newest one, so that both are of the log and no clock of ours is asked.

Ingest commits the start of its recovery horizon, a minute back, and writes into the commit's metadata what it has
really processed: its lag is counted from there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ops.status.model import PartitionStatus, PartState, PartStatus
from ops.status.words import age, plural
from schemas.topics import (
    CONTROL_WINDOWS,
    FLEET_CAPACITY,
    RANKING_OUTCOMES,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    SERVING_LATENCY,
    WORK_BY_ROUTE,
    Namespace,
    Topic,
)
from streams.ingest.progress import ProgressError, from_metadata

# A record that waits for longer is no backlog any more: a part has stopped. Every part commits once a second or more.
STALL_S = 10.0
MS_PER_S = 1_000


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part on one topic. ``is_needed``: without it the pipeline stands, as against idle capacity that may go."""

    name: str
    group: str
    topic: Topic
    is_needed: bool = True
    commits_horizon: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """What the broker says of one partition for one group; times are append times, milliseconds since the epoch.

    ``committed`` is None where nothing is; ``first_ms`` is that of the first record not done, None where there is none
    or it was not found.
    """

    partition: int
    low: int
    end: int
    committed: int | None = None
    metadata: str | None = None
    newest_ms: int | None = None
    first_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Position:
    """First offset that a part has not done, and the largest append time before it where the commit says so.

    ``doubt`` is why a commit's metadata cannot be read; the committed offset stands in then.
    """

    offset: int | None
    largest_ms: int | None = None
    doubt: str | None = None


def parts_of(namespace: Namespace) -> tuple[Part, ...]:
    """Every part with a consumer group, in the order in which records flow."""
    return (
        *(
            Part(name="ingest", group=namespace.group("ingest"), topic=topic, commits_horizon=True)
            for topic in (FLEET_CAPACITY, SERVING_LATENCY, RANKING_RESULTS, RANKING_OUTCOMES)
        ),
        Part(name="control", group=namespace.group("control"), topic=CONTROL_WINDOWS),
        Part(name="router", group=namespace.group("router"), topic=RANKING_REQUESTS),
        *(
            Part(
                name=f"ranker.{route}",
                group=namespace.group(f"ranker.{route}"),
                topic=topic,
                is_needed=route == "baseline",
            )
            for route, topic in WORK_BY_ROUTE.items()
        ),
    )


def position(part: Part, committed: int | None, metadata: str | None, *, window_ms: int) -> Position:
    """Where a part is in a partition, by its commit."""
    if committed is None or not part.commits_horizon:
        return Position(offset=committed)
    try:
        progress = from_metadata(committed, metadata, window_ms=window_ms, settings=None)
    except ProgressError as error:
        return Position(offset=committed, doubt=str(error))
    return Position(offset=max(committed, progress.last_offset + 1), largest_ms=progress.largest_ms)


def partition_status(
    part: Part, facts: PartitionFacts, *, now_ms: int, window_ms: int, lateness_ms: int
) -> PartitionStatus:
    """Lag of a part in one partition."""
    at = position(part, facts.committed, facts.metadata, window_ms=window_ms)
    behind = max(0, facts.end - max(at.offset or 0, facts.low))
    lag_s = waiting_s = 0.0 if behind == 0 else None
    if behind and facts.first_ms is not None:
        waiting_s = _seconds(now_ms - facts.first_ms)
        if facts.newest_ms is not None:
            lag_s = _seconds(facts.newest_ms - facts.first_ms)
    return PartitionStatus(
        partition=facts.partition,
        low=facts.low,
        end=facts.end,
        position=at.offset,
        lag_records=behind,
        lag_s=lag_s,
        waiting_s=waiting_s,
        newest=None if facts.newest_ms is None else at_time(facts.newest_ms),
        watermark=None if at.largest_ms is None else at_time(max(0, at.largest_ms - lateness_ms)),
    )


def part_status(
    part: Part, topic: str, partitions: Sequence[PartitionStatus], *, num_members: int | None
) -> PartStatus:
    """A part over all partitions of ``topic``, its full name."""
    behind = sum(partition.lag_records for partition in partitions)
    waiting_s = _longest(partition.waiting_s for partition in partitions)
    state: PartState = "running"
    if num_members == 0:
        began = any(partition.position is not None for partition in partitions)
        state = "absent" if behind or began else "unused"
    elif waiting_s is not None and waiting_s > STALL_S:
        state = "stalled"
    return PartStatus(
        part=part.name,
        group=part.group,
        topic=topic,
        state=state,
        reason=_reason(state, topic, num_records=behind, waiting_s=waiting_s),
        num_members=num_members,
        lag_records=behind,
        lag_s=_longest(partition.lag_s for partition in partitions),
        waiting_s=waiting_s,
        partitions=list(partitions),
    )


def _reason(state: PartState, topic: str, *, num_records: int, waiting_s: float | None) -> str | None:
    match state:
        case "running":
            return None
        case "unused":
            return f"nobody reads {topic}, and nothing is to read"
        case "absent":
            behind = f", {plural(num_records, 'record')} to read" if num_records else ""
            return f"nobody reads {topic}{behind}"
        case "stalled":
            waiting = "" if waiting_s is None else f", the oldest for {age(waiting_s)}"
            return f"{plural(num_records, 'record')} of {topic} not done{waiting}"


def at_time(time_ms: int) -> datetime:
    """Milliseconds since the epoch as a time with zone."""
    return datetime.fromtimestamp(time_ms / MS_PER_S, UTC)


def _longest(lags_s: Iterable[float | None]) -> float | None:
    """The longest lag; None when one is unknown, as that may be the longest."""
    known = list(lags_s)
    return None if any(lag is None for lag in known) else max((lag for lag in known if lag is not None), default=0.0)


def _seconds(span_ms: int) -> float:
    return round(max(0, span_ms) / MS_PER_S, 3)
