"""Results as a reader gets them: each request once, whatever was read when, and a place that is the caller's word."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import ranking.client.results.partition as reading
from ranking.client.results import PositionError, ResultsOptions
from ranking.client.results.partition import ResultsPartition
from ranking.client.results.places import check_start, sink_places
from ranking.client.results.view import Result, standing_of
from ranking.client.results.window import IdWindow
from schemas.dead_letters import RawRecord
from schemas.errors import SchemaPendingError
from schemas.framing import encode
from schemas.records import RankingResult

GOLDEN = json.loads((Path(__file__).parents[2] / "contract/golden_records.json").read_text(encoding="utf-8"))
RESULT = msgspec.json.decode(json.dumps(GOLDEN["RankingResult"]["record"]), type=RankingResult)
HORIZON = 4


def raw(offset, request_id=None, *, value=None):
    return RawRecord(
        topic="t.ranking.results",
        partition=2,
        offset=offset,
        timestamp_ms=1_000 + offset,
        timestamp_kind="append",
        key=b"u-1",
        value=encode(replace(RESULT, request_id=request_id)) if value is None else value,
    )


def partition_at(offset, *, horizon_records=HORIZON, owned_since=1):
    return ResultsPartition(2, offset, horizon_records=horizon_records, owned_since=owned_since)


def ids(batch):
    return [result.request_id for result in batch]


def test_a_batch_says_what_its_records_came_to():
    partition = partition_at(10)
    batch = partition.read([raw(10, "a"), raw(11, value=b"no result"), raw(12, "a"), raw(13, "b")])
    assert (batch.partition, batch.first_offset, batch.next_offset) == (2, 10, 14)
    assert [(result.request_id, result.offset, result.append_ms) for result in batch] == [
        ("a", 10, 1_010),
        ("b", 13, 1_013),
    ]
    assert (len(batch), batch.num_duplicates, batch.num_deleted) == (2, 1, 0)
    (bad,) = batch.unreadable
    letter = bad.letter()
    assert (letter.offset, letter.reason, letter.value, letter.part) == (11, "bad_framing", b"no result", "caller")
    assert partition.read([raw(16, "c")]).num_deleted == 2


def test_a_result_is_typed_and_says_what_it_is_worth_and_who_made_it():
    (result,) = partition_at(0).read([raw(0, "a")])
    assert isinstance(result, Result)
    assert result.ad_ids_K.dtype == np.int64
    assert result.ad_ids_K.tolist() == [11, 12]
    assert result.scores_K.tolist() == [0.5, 1.5]
    assert (result.standing, result.routes) == ("ok", ("baseline", "wide"))
    assert standing_of(replace(RESULT, late=True)) == "late"
    assert standing_of(replace(RESULT, late=True, degraded=True)) == "degraded"
    assert standing_of(replace(RESULT, late=True, degraded=True, status="error")) == "error"


@given(
    log=st.lists(st.sampled_from([*"abcdef", None]), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=5),
)
def test_whoever_reads_on_judges_as_if_all_had_been_read_at_once(log, cuts):
    """What is a duplicate depends on the log alone: restarts in between, anywhere, change nothing."""
    records = [
        raw(offset, value=b"poison") if request_id is None else raw(offset, request_id)
        for offset, request_id in enumerate(log)
    ]
    expected = [
        offset
        for offset, request_id in enumerate(log)
        if request_id is not None and request_id not in log[max(0, offset - HORIZON) : offset]
    ]
    found = []
    bounds = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    for begin, end in pairwise(bounds):
        partition = partition_at(begin)
        partition.remember(records[max(0, begin - HORIZON) : begin])
        found += [result.offset for result in partition.read(records[begin:end])]
    assert found == expected


@given(st.lists(st.integers(0, 50), max_size=200))
def test_no_more_ids_are_kept_than_the_horizon_has_offsets(numbers):
    window = IdWindow(HORIZON)
    for offset, number in enumerate(numbers):
        window.note(str(number), offset)
        assert len(window) <= HORIZON + 1


def test_without_a_horizon_nothing_is_a_duplicate():
    assert ids(partition_at(0, horizon_records=0).read([raw(0, "a"), raw(1, "a")])) == ["a", "a"]


def test_only_what_the_caller_had_and_acknowledged_counts():
    partition = partition_at(0)
    first, second, third = (partition.read([raw(offset, str(offset))]) for offset in range(3))
    partition.acknowledge()
    assert partition.acknowledged_offset == 0
    partition.hand_out(first)
    partition.hand_out(second)
    assert partition.acknowledged_offset == 0
    partition.acknowledge(first)
    assert partition.acknowledged_offset == 1
    partition.acknowledge()
    assert partition.acknowledged_offset == 2
    # A worker that was slower than another one.
    partition.acknowledge(first)
    assert partition.acknowledged_offset == 2
    partition.hand_out(third)
    assert (partition.acknowledged_offset, partition.handed_offset) == (2, 3)


def test_a_batch_of_an_earlier_time_of_owning_the_partition_acknowledges_nothing():
    old = partition_at(0, owned_since=1).read([raw(offset, str(offset)) for offset in range(9)])
    partition = partition_at(3, owned_since=2)
    partition.acknowledge(old)
    assert partition.acknowledged_offset == 3


class FakeSink:
    def __init__(self, **offsets):
        self.offsets = {int(name[1:]): offset for name, offset in offsets.items()}

    def next_offset(self, partition):
        return self.offsets.get(partition)


def test_a_place_that_the_group_has_not_heard_of_is_told_with_the_next_commit():
    partition = ResultsPartition(2, 10, horizon_records=HORIZON, is_told=False)
    assert partition.acknowledged_offset == 10
    assert partition.committed_offset != 10
    assert partition_at(10).committed_offset == 10


def test_a_batch_of_another_time_is_not_taken():
    earlier, later = partition_at(10), partition_at(10, owned_since=2)
    batch = earlier.read([raw(10, "a")])
    assert earlier.acknowledge(batch)
    assert not later.acknowledge(batch)


def test_a_log_that_goes_back_is_another_log():
    partition = partition_at(1_000)
    partition.read([raw(1_000, "a")])
    with pytest.raises(PositionError, match=r"ranking.results/2: offset 5 comes after 1000"):
        partition.read([raw(5, "b")])


def test_a_schema_that_was_refused_and_is_asked_for_again_ends_nothing(monkeypatch):
    def pending(value):
        raise SchemaPendingError("schema 7 is not known yet")

    monkeypatch.setattr(reading, "_decode", pending)
    (bad,) = partition_at(10).read([raw(10, "a")]).unreadable
    assert bad.error.reason == "unknown_schema"


def test_the_sink_says_where_it_stands_and_must_have_been_there():
    spans = {0: (5, 9), 1: (0, 3), 2: (0, 0)}
    # Behind the first record there is: the retention was quicker, and reading says how many are gone.
    assert sink_places(FakeSink(p0=2, p2=0), spans) == {0: 2, 2: 0}
    for wrong in (10, -1):
        with pytest.raises(PositionError, match="partition 0"):
            sink_places(FakeSink(p0=wrong), spans)


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizon_records": -1},
        {"max_batch": 0},
        {"queue_kib": 0},
        {"max_handling_s": 1.0},
        {"max_handling_s": float("nan")},
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ResultsOptions(**wrong)


def test_a_start_has_a_zone_and_a_sink_never_starts_where_it_could_miss_something():
    check_start("latest", has_sink=False)
    check_start(datetime(2026, 3, 1, tzinfo=UTC), has_sink=True)
    wrong: list[tuple[Any, bool]] = [(datetime(2026, 3, 1), False), ("end", False), ("latest", True)]  # noqa: DTZ001
    for start, has_sink in wrong:
        with pytest.raises(ValueError, match=r"start|sink"):
            check_start(start, has_sink=has_sink)
