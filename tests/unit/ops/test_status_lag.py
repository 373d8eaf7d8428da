"""Lag in records and seconds, from commits and append times alone."""

import pytest

from ops.status.build import PartFacts
from ops.status.model import PartitionStatus
from ops.status.parts import STALL_S, PartitionFacts, part_status, partition_status, parts_of, position
from schemas.settings import MeasurementSettings
from schemas.topics import RANKING_RESULTS, Namespace
from streams.ingest.progress import Progress, to_metadata
from tests.unit.ops.status_makers import NAMESPACE, NOW_MS, TIME, WINDOW_MS, part, status_of

NEWEST_MS = NOW_MS - 1_000
FIRST_MS = NOW_MS - 3_500


def lag(name: str, facts: PartitionFacts, *, now_ms: int = NOW_MS) -> PartitionStatus:
    topic = "serving" if name == "ingest" else ""
    return partition_status(part(name, topic), facts, now_ms=now_ms, window_ms=WINDOW_MS, lateness_ms=TIME.lateness_ms)


def ingest_commit(last_offset: int, largest_ms: int, *, window_ms: int = WINDOW_MS) -> str:
    progress = Progress(offset=0, last_offset=last_offset, largest_ms=largest_ms, next_window=7)
    return to_metadata(progress, window_ms=window_ms)


def test_lag_is_from_the_first_record_not_done_to_the_newest() -> None:
    facts = PartitionFacts(partition=3, low=5, end=20, committed=12, newest_ms=NEWEST_MS, first_ms=FIRST_MS)
    seen = lag("router", facts)
    assert (seen.lag_records, seen.lag_s, seen.waiting_s, seen.position) == (8, 2.5, 3.5, 12)
    assert seen.watermark is None


def test_nothing_behind_is_no_lag_however_old_the_newest_record_is() -> None:
    facts = PartitionFacts(partition=3, low=5, end=20, committed=20, newest_ms=1)
    seen = lag("control", facts)
    assert (seen.lag_records, seen.lag_s, seen.waiting_s) == (0, 0.0, 0.0)


def test_what_is_not_known_is_null_and_never_zero() -> None:
    seen = lag("router", PartitionFacts(partition=0, low=0, end=4, committed=1))
    assert (seen.lag_records, seen.lag_s, seen.waiting_s, seen.newest) == (3, None, None, None)


def test_without_a_commit_everything_kept_is_behind() -> None:
    facts = PartitionFacts(partition=0, low=5, end=20, newest_ms=NEWEST_MS, first_ms=FIRST_MS)
    assert lag("router", facts).lag_records == 15
    assert lag("router", facts).position is None


def test_a_commit_that_retention_has_overtaken_counts_what_is_left() -> None:
    assert lag("router", PartitionFacts(partition=0, low=15, end=20, committed=3)).lag_records == 5


def test_a_commit_read_after_the_end_is_no_negative_lag() -> None:
    assert lag("router", PartitionFacts(partition=0, low=0, end=20, committed=22)).lag_records == 0


def test_ingest_is_where_its_metadata_says_and_not_at_its_recovery_horizon() -> None:
    facts = PartitionFacts(
        partition=0, low=0, end=1_000, committed=200, metadata=ingest_commit(989, NEWEST_MS), newest_ms=NEWEST_MS
    )
    seen = lag("ingest", facts)
    assert (seen.position, seen.lag_records) == (990, 10)
    assert seen.watermark is not None
    assert round(seen.watermark.timestamp() * 1_000) == NEWEST_MS - TIME.lateness_ms


def test_where_results_are_counted_is_known_whatever_the_settings_of_measurement() -> None:
    progress = Progress(offset=200, last_offset=989, largest_ms=NEWEST_MS, next_window=5)
    metadata = to_metadata(progress, window_ms=WINDOW_MS, settings=MeasurementSettings().tag)
    results = next(part for part in parts_of(Namespace("")) if part.topic is RANKING_RESULTS)
    at = position(results, 200, metadata, window_ms=WINDOW_MS)
    assert (at.offset, at.largest_ms, at.doubt) == (990, NEWEST_MS, None)


@pytest.mark.parametrize("metadata", [None, "", "nonsense", ingest_commit(989, NEWEST_MS, window_ms=777)])
def test_metadata_that_cannot_be_read_is_said_and_the_offset_counts(metadata: str | None) -> None:
    ingest = part("ingest", "serving")
    at = position(ingest, 200, metadata, window_ms=WINDOW_MS)
    assert at.offset == 200
    assert at.doubt
    facts = PartitionFacts(partition=0, low=0, end=1_000, committed=200, metadata=metadata)
    seen = status_of(parts=[PartFacts(part=ingest, num_members=1, partitions=[facts])])
    assert "commit_unreadable" in [trouble.kind for trouble in seen.troubles]


def partition(**fields: object) -> PartitionStatus:
    known = {"partition": 0, "low": 0, "end": 9, "position": 5, "lag_records": 4, "lag_s": 1.0, "waiting_s": 2.0}
    return PartitionStatus(**{**known, "newest": None, "watermark": None, **fields})  # type: ignore[arg-type]


IDLE = {"position": None, "end": 0, "lag_records": 0, "lag_s": 0.0, "waiting_s": 0.0}


@pytest.mark.parametrize(
    ("num_members", "fields", "state"),
    [
        (1, {}, "running"),
        (1, {"waiting_s": STALL_S}, "running"),
        (1, {"waiting_s": STALL_S + 0.1}, "stalled"),
        (None, {"waiting_s": STALL_S + 0.1}, "stalled"),
        (0, {}, "absent"),
        (0, {"position": 9, "lag_records": 0, "waiting_s": 0.0}, "absent"),
        (0, {"position": None}, "absent"),
        (0, IDLE, "unused"),
        (None, IDLE, "running"),
    ],
)
def test_a_part_is_running_stalled_absent_or_unused(
    num_members: int | None, fields: dict[str, object], state: str
) -> None:
    assert part_status(part("router"), "t", [partition(**fields)], num_members=num_members).state == state


def test_a_part_is_as_far_behind_as_its_worst_partition() -> None:
    seen = part_status(part("router"), "t", [partition(), partition(lag_s=3.0, waiting_s=1.0)], num_members=1)
    assert (seen.lag_records, seen.lag_s, seen.waiting_s) == (8, 3.0, 2.0)
    unknown = part_status(part("router"), "t", [partition(), partition(lag_s=None)], num_members=1)
    assert unknown.lag_s is None


def test_parts_are_those_of_the_namespace_and_idle_capacity_may_go() -> None:
    groups = {known.group for known in parts_of(NAMESPACE)}
    assert groups == {
        f"t.intertidal.{name}"
        for name in ("ingest", "control", "router", "ranker.baseline", "ranker.wide", "ranker.powerful")
    }
    assert [known.name for known in parts_of(Namespace()) if not known.is_needed] == ["ranker.wide", "ranker.powerful"]
