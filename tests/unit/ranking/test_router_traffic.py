"""Segments and upstream times in a router's intervals: every request once, whatever callers name and claim."""

import msgspec
import pytest

from ranking.intervals import MAX_UPSTREAM_MS, IntervalRecorder
from ranking.router.arms import arm_of
from ranking.router.experiment import Experiment
from schemas.framing import decode_as, encode
from schemas.histogram import ExponentialHistogram
from schemas.records import LatencyInterval, SegmentShare, SegmentTraffic
from schemas.segments import MAX_SEGMENTS, NO_SEGMENT, OTHER_SEGMENT
from tests.unit.ranking.router_driver import START_MS, Driver, target_of


def recorder():
    return IntervalRecorder("us-east", source="router-1", part="router", epoch_ms=1_000)


def closed(driver):
    """The first interval, in which all that came before is noted."""
    driver.advance(driver.now_ms)
    return driver.intervals[0]


def with_shares(other_share=0.0, **shares):
    listed = [SegmentShare(segment=segment, share=share) for segment, share in shares.items()]
    return msgspec.structs.replace(target_of(100), segment_shares=listed, other_share=other_share)


def users_where(allows_sbm, num):
    names = (f"user-{number}" for number in range(10_000))
    return [name for name in names if arm_of(name).allows_sbm is allows_sbm][:num]


def test_segments_are_counted_with_what_was_assigned_to_them():
    cell = recorder()
    cell.count_segment("travel", is_allowed=True, probability=0.25, is_routed=True)
    cell.count_segment("travel")
    cell.count_segment("retail", is_allowed=True, probability=0.1234564)
    sent = cell.close(2_000)
    assert sent.segments == [
        SegmentTraffic(segment="retail", num_requests=1, num_allowed=1, probability_micro=123_456),
        SegmentTraffic(segment="travel", num_requests=2, num_allowed=1, probability_micro=250_000, num_routed=1),
    ]
    assert decode_as(encode(sent), LatencyInterval) == sent
    assert cell.close(3_000).segments == []


def test_callers_that_name_a_segment_a_request_make_no_longer_a_record():
    cell = recorder()
    for number in range(200):
        cell.count_segment(f"made-up-{number}")
        cell.count_segment("made-up-0")
    segments = cell.close(2_000).segments
    assert len(segments) == MAX_SEGMENTS + 1
    assert sum(traffic.num_requests for traffic in segments) == 400
    assert {traffic.segment: traffic.num_requests for traffic in segments}[OTHER_SEGMENT] == 200 - MAX_SEGMENTS


@pytest.mark.parametrize(
    "assigned",
    [
        {"probability": 0.1},
        {"is_routed": True},
        {"is_allowed": True, "probability": 1.1},
        {"is_allowed": True, "probability": float("nan")},
    ],
)
def test_what_no_arm_allows_is_not_counted(assigned):
    cell = recorder()
    with pytest.raises(ValueError, match="allowed"):
        cell.count_segment("retail", **assigned)
    assert cell.close(2_000).segments == []


def test_upstream_times_are_counted_where_callers_tell_them_and_bounded():
    cell = recorder()
    cell.record_upstream(0)
    assert cell.close(2_000).upstream is None
    cell.record_upstream(25_000)
    for _ in range(5):
        cell.record_upstream(2**62)
    upstream = cell.close(3_000).upstream
    merged = ExponentialHistogram.from_fields(**msgspec.structs.asdict(upstream))
    assert merged.count == 6
    assert merged.quantile(0.0) == pytest.approx(25.0, rel=merged.relative_error)
    assert merged.quantile(1.0) == pytest.approx(MAX_UPSTREAM_MS, rel=merged.relative_error)


def test_a_router_counts_each_request_once_by_segment_with_the_probability_that_it_drew_by():
    driver = Driver(experiment=Experiment())
    driver.core.targets.update(with_shares(0.5, retail=0.25))
    allowed, held = users_where(True, 4), users_where(False, 2)
    for number, user in enumerate([*allowed, *held]):
        driver.request(request_id=f"r{number}", user_id=user, advertiser_segment="retail", upstream_us=30_000)
    driver.request(request_id="again", user_id=allowed[0], advertiser_segment="")
    driver.request(request_id="again", user_id=allowed[0], advertiser_segment="")
    driver.request(request_id="wrong", user_id=allowed[0], num_base=0, advertiser_segment="retail")
    interval = closed(driver)
    sent = {work.work.request_id for work in driver.on("powerful")}
    routed = {"num_routed": len(sent - {"again"})}
    assert interval.segments == [
        SegmentTraffic(
            segment=NO_SEGMENT,
            num_requests=1,
            num_allowed=1,
            probability_micro=500_000,
            num_routed=len(sent & {"again"}),
        ),
        SegmentTraffic(segment="retail", num_requests=7, num_allowed=4, probability_micro=1_000_000, **routed),
    ]
    assert sent
    assert interval.num_requests == sum(traffic.num_requests for traffic in interval.segments)
    assert interval.upstream.count == 6


@pytest.mark.parametrize(
    ("horizon", "valid_until_ms"), [(0, START_MS - 1), (5, START_MS + 60_000)], ids=["expired", "another's request"]
)
def test_nothing_is_assigned_by_an_expired_target_nor_to_what_another_router_left(horizon, valid_until_ms):
    driver = Driver(horizon=horizon, experiment=Experiment())
    driver.core.targets.update(msgspec.structs.replace(with_shares(1.0), valid_until_ms=int(valid_until_ms)))
    driver.request(user_id=users_where(True, 1)[0], advertiser_segment="retail")
    assert closed(driver).segments == [SegmentTraffic(segment="retail", num_requests=1, num_allowed=1)]
