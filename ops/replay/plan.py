"""What a replay would read, and what it could not: said before anything runs. Pure.

``plan`` in JSON is this, and nothing is written before somebody says --go.
"""

import math
from typing import Final

from msgspec import Struct

from ops.replay.run_log import SourceSpan
from ops.times import iso_time
from schemas.settings import TimeSettings
from streams.ingest.aggregate import horizon_ms

# Of one worker on one processor, in the middle of what was measured; only ever called "about".
RECORDS_PER_S: Final = 30_000.0


class PartitionPlan(Struct, frozen=True, kw_only=True):
    """One source partition: what is read of it, how much that is, and what retention has left of the range.

    ``num_removed`` counts records before the first one that is still there; ``begins_ms`` is the append time of the
    first record read, None where there is none; ``num_bytes`` is counted from a sample.
    """

    topic: str
    partition: int
    start: int
    end: int
    num_records: int
    num_bytes: int
    begins_ms: int | None
    num_removed: int
    first_window: int | None = None


class PlanTotals(Struct, frozen=True, kw_only=True):
    """All partitions together; ``expected_s`` at the given rate, or by a measured speed where there is none."""

    num_records: int
    num_bytes: int
    num_removed: int
    expected_s: float


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The JSON of a plan. ``notes`` are sentences that one should read before --go; ``resumes`` an earlier start."""

    run: str
    parts: list[str]
    resumes: bool
    rate: float
    num_workers: int
    partitions: list[PartitionPlan]
    total: PlanTotals
    num_snapshots: int
    notes: list[str]


def totals(partitions: list[PartitionPlan], *, rate: float, num_workers: int) -> PlanTotals:
    """Sums of a plan."""
    num_records = sum(each.num_records for each in partitions)
    speed = rate or RECORDS_PER_S * num_workers
    return PlanTotals(
        num_records=num_records,
        num_bytes=sum(each.num_bytes for each in partitions),
        num_removed=sum(each.num_removed for each in partitions),
        expected_s=math.ceil(num_records / speed),
    )


def raw_span(
    partition: int,
    *,
    low: tuple[int, int | None],
    since: tuple[int, int] | None,
    horizon: int,
    end: int,
    time: TimeSettings,
) -> tuple[SourceSpan, str]:
    """What is read of a raw partition, and what cannot be known of the range, as a sentence or nothing.

    ``low`` is the first offset that is there and the append time at it; ``since`` the first offset of the range and its
    time, None for everything; ``horizon`` the first offset at which reading must begin for that. From the beginning of
    the log everything is exact. Elsewhere windows are said from the first one on of which all is known: what ingest
    knows at the start of window W depends on what was appended at ``start(W) - horizon`` or later.
    """
    low_offset, low_ms = low
    if since is None and low_offset == 0:
        return SourceSpan(partition=partition, start=0, end=end), ""
    said_from, since_ms = since if since is not None else (low_offset, low_ms or 0)
    start = max(low_offset, horizon if since is not None else low_offset)
    first_window = -(-since_ms // time.window_ms)
    note = ""
    if low_offset > 0 and low_ms is not None:
        known = -(-(low_ms + horizon_ms(time)) // time.window_ms)
        if known > first_window:
            first_window = known
            exact_ms = first_window * time.window_ms
            note = f"exact from {iso_time(exact_ms)} on only, as retention has removed what was before"
    span = SourceSpan(
        partition=partition,
        start=min(start, end),
        end=end,
        said_from=max(said_from, low_offset),
        first_window=first_window,
    )
    return span, note
