"""What a latency window says of single reporters, routers and segments; and that no fleet makes it too large."""

from typing import Any

import pytest

from schemas.errors import RecordError
from schemas.framing import MAX_RECORD_BYTES, decode_as, encode
from schemas.histogram import MAX_BUCKETS, ExponentialHistogram
from schemas.records import ControlWindow, HistogramFields, LatencyInterval, LatencyWindow, SegmentTraffic
from streams.ingest import reporters, segments
from streams.ingest.bounds import MAX_COUNT, OTHER
from streams.ingest.latency import SATURATED, LatencyCell, LatencyKind
from tests.unit.streams.ingest_makers import LIMITS, TIME, account, histogram, interval, latency_of, route


def traffic(segment: str, num_requests: int, num_allowed: int = 0, probability_micro: int = 0, num_routed: int = 0):
    return SegmentTraffic(
        segment=segment,
        num_requests=num_requests,
        num_allowed=num_allowed,
        probability_micro=probability_micro,
        num_routed=num_routed,
    )


def closed(*records: LatencyInterval) -> LatencyWindow:
    cell = LatencyCell()
    for record in records:
        cell.accept(record, window=10, append_ms=record.event_time_ms, late=False)
    return latency_of(cell.close(10, LIMITS))


def p99_of(*values: float) -> int:
    merged = ExponentialHistogram()
    merged.record_many(list(values))
    p99_ms = merged.quantile(0.99)
    assert p99_ms is not None
    return round(p99_ms * 1_000)


def test_a_reporters_p99_is_that_of_all_its_intervals_and_of_no_other():
    window = closed(
        interval(
            source="k-2",
            part="ranker",
            at_ms=1_000,
            routes=[route("wide", [4.0, 5.0], num_work=3, num_answered=2, busy_us=7, units_done=640)],
        ),
        interval(
            source="k-1",
            part="ranker",
            at_ms=1_000,
            routes=[route("wide", [900.0], num_work=1, num_answered=1), route("baseline")],
        ),
        interval(
            source="k-2",
            seq=2,
            part="ranker",
            at_ms=1_000,
            routes=[route("wide", [60.0], num_work=1, num_answered=1, busy_us=3, units_done=64)],
        ),
        interval(source="k-2", at_ms=1_000, routes=[route("wide", [1.0], num_work=1)]),
    )
    of_baseline, of_wide, of_routers = window.routes
    assert [found.source for found in of_baseline.reporters] == ["k-1"]
    first, second = of_wide.reporters
    assert (first.source, first.num_work, first.p99_us) == ("k-1", 1, p99_of(900.0))
    assert (second.source, second.num_work, second.num_answered) == ("k-2", 4, 3)
    assert (second.busy_us, second.units_done, second.p99_us) == (10, 704, p99_of(4.0, 5.0, 60.0))
    assert [(found.source, found.num_work) for found in of_routers.reporters] == [("k-2", 1)]
    # Nothing answered is no latency.
    assert of_baseline.reporters[0].p99_us == 0


def test_routers_are_listed_with_their_own_latency_and_replicas_are_none():
    window = closed(
        interval(source="r-2", at_ms=1_000, latency=histogram(3.0), num_requests=1),
        interval(source="r-1", at_ms=1_000, latency=histogram(900.0), num_requests=4),
        interval(source="r-2", seq=2, at_ms=1_000, latency=histogram(5.0), num_requests=2),
        interval(source="k-1", part="ranker", at_ms=1_000, latency=histogram(7.0), num_requests=9),
    )
    assert [(router.source, router.num_requests, router.latency) for router in window.routers] == [
        ("r-1", 4, histogram(900.0)),
        ("r-2", 3, histogram(3.0, 5.0)),
    ]
    assert (window.num_routers, window.num_rankers) == (2, 1)


def test_upstream_time_is_merged_over_the_routers_and_unknown_where_none_tells():
    assert closed(interval(at_ms=1_000), interval(seq=2, at_ms=1_000, upstream=histogram())).upstream is None
    window = closed(
        interval(at_ms=1_000, upstream=histogram(20.0)),
        interval(source="r-2", at_ms=1_000, upstream=histogram(40.0, 60.0)),
        interval(source="k-1", part="ranker", at_ms=1_000, upstream=histogram(9_000.0)),
    )
    assert window.upstream == histogram(20.0, 40.0, 60.0)


def test_segments_sum_up_over_the_routers_in_order_of_names():
    window = closed(
        interval(at_ms=1_000, segments=[traffic("travel", 4, 3, 1_500_000, 1), traffic("(none)", 2)]),
        interval(source="r-2", at_ms=1_000, segments=[traffic("travel", 6, 6, 500_000, 2)]),
        interval(source="k-1", part="ranker", at_ms=1_000, segments=[traffic("travel", 99)]),
    )
    assert window.segments == [traffic("(none)", 2), traffic("travel", 10, 9, 2_000_000, 3)]


def test_beyond_the_bound_the_smallest_segments_stand_together_with_what_came_as_other():
    listed = [traffic(f"s-{number:03d}", number + 1, number, number) for number in range(100)]
    window = closed(interval(at_ms=1_000, segments=[traffic(OTHER, 10_000), *listed]))
    assert len(window.segments) == segments.MAX_SEGMENTS + 1
    other = window.segments[0]
    # 36 do not fit, those with 1 to 36 requests.
    assert other == traffic(OTHER, 10_000 + 36 * 37 // 2, 36 * 35 // 2, 36 * 35 // 2)
    assert [found.segment for found in window.segments[1:]] == [f"s-{number:03d}" for number in range(36, 100)]


def test_made_up_names_are_told_apart_up_to_a_bound_and_counted_all_the_same():
    num = segments.MAX_TRACKED + 5
    window = closed(*(interval(seq=n, at_ms=1_000, segments=[traffic(f"s-{n:05d}", n + 1)]) for n in range(num)))
    assert sum(found.num_requests for found in window.segments) == num * (num + 1) // 2
    # The last five, the largest, came when there was no more room.
    assert window.segments[-1].segment == f"s-{segments.MAX_TRACKED - 1:05d}"

    num = reporters.MAX_TRACKED + 5
    window = closed(
        *(interval(source=f"r-{n:05d}", at_ms=1_000, num_requests=n, routes=[route(num_work=n)]) for n in range(num))
    )
    assert (window.num_routers, window.routes[0].num_reporters, window.num_requests) == (num, num, num * (num - 1) // 2)
    assert len(window.routers) == reporters.MAX_ROUTERS
    assert len(window.routes[0].reporters) == reporters.MAX_REPORTERS
    assert window.routers[-1].source == f"r-{reporters.MAX_TRACKED - 1:05d}"
    assert window.routes[0].reporters[-1].source == f"r-{reporters.MAX_TRACKED - 1:05d}"


def test_those_with_the_most_to_say_are_listed_whatever_the_order_they_came_in():
    made = [
        interval(source=f"r-{n:03d}", at_ms=1_000, num_requests=n % 50, routes=[route(num_work=n % 90)])
        for n in range(100)
    ]
    window = closed(*made)
    assert window == closed(*made[::-1])
    assert min(router.num_requests for router in window.routers) == 34
    assert min(found.num_work for found in window.routes[0].reporters) == 26


def test_a_window_at_all_its_bounds_is_still_far_from_the_largest_record():
    values = [2.0 ** (number / 8.0) for number in range(MAX_BUCKETS)]
    wide_open = histogram(*values)
    assert len(wide_open.counts) == 8 * MAX_BUCKETS

    def long(prefix: str, number: int) -> str:
        return f"{prefix}-{number}-".ljust(256, "x")

    routes = [
        route(
            name,
            values,
            queue_wait=wide_open,
            num_work=MAX_COUNT // 2,
            num_answered=MAX_COUNT // 2,
            busy_us=MAX_COUNT // 2,
            units_done=MAX_COUNT // 2,
        )
        for name in ("baseline", "wide", "powerful")
    ]
    listed = [traffic(long("s", number), MAX_COUNT, MAX_COUNT, MAX_COUNT, MAX_COUNT) for number in range(100)]
    accounts = [
        account(lever, **{long("reason", number): 2**50 for number in range(100)})
        for lever in ("rma", "sbm", "precompute")
    ]
    records = [
        interval(
            source=long("source", number),
            part=part,
            at_ms=1_000,
            latency=wide_open,
            upstream=wide_open,
            num_requests=MAX_COUNT // 2,
            routes=routes,
            segments=listed,
            accounts=accounts,
        )
        for number in range(80)
        for part in ("router", "ranker")
    ]
    window = closed(*records)
    assert (len(window.routers), len(window.segments)) == (reporters.MAX_ROUTERS, segments.MAX_SEGMENTS + 1)
    assert [len(found.reporters) for found in window.routes] == [reporters.MAX_REPORTERS] * 6
    sent = ControlWindow(
        cell="us-east",
        kind="latency",
        source_partition=0,
        window_index=10,
        start_ms=0,
        end_ms=1,
        latency=window,
        note=SATURATED,
    )
    encoded = encode(sent)
    assert len(encoded) < MAX_RECORD_BYTES / 2
    assert decode_as(encoded, ControlWindow) == sent


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"segments": [traffic("retail", 1), traffic("retail", 1)]}, "segments"),
        ({"segments": [traffic("retail", 1), traffic("travel", 1, 2)]}, "segments[1]"),
        ({"segments": [traffic("retail", 3, 2, 0, 3)]}, "segments[0]"),
        ({"segments": [traffic("retail", 3, 2, 2_000_001)]}, "segments[0]"),
        ({"upstream": {"zero_count": 1}}, "upstream"),
    ],
    ids=["twice", "more allowed than there were", "more routed than allowed", "beyond certainty", "histogram"],
)
def test_what_contradicts_itself_is_not_believed(changes: dict[str, Any], field: str):
    if "upstream" in changes:
        empty = histogram()
        shown = {name: getattr(empty, name) for name in empty.__struct_fields__}
        changes = {"upstream": HistogramFields(**shown | changes["upstream"])}
    with pytest.raises(RecordError) as caught:
        LatencyKind().believe(interval(at_ms=1_000, **changes), TIME)
    assert caught.value.field == field


def test_certainty_for_all_who_are_allowed_is_believed():
    LatencyKind().believe(
        interval(at_ms=1_000, upstream=histogram(3.0), segments=[traffic("retail", 3, 2, 2_000_000, 2)]), TIME
    )
