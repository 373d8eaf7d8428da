"""Intervals: what goes in comes out once, numbered, with accounts that add up exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.intervals import MAX_VALUE_MICRO, IntervalRecorder
from schemas.framing import decode_as, encode
from schemas.histogram import ExponentialHistogram
from schemas.records import HistogramFields, LatencyInterval


def recorder(**overrides):
    return IntervalRecorder("us-east", **{"source": "router-1", "part": "router", "epoch_ms": 1_000, **overrides})


def histogram_of(fields: HistogramFields) -> ExponentialHistogram:
    return ExponentialHistogram.from_fields(**{name: getattr(fields, name) for name in fields.__struct_fields__})


def test_an_interval_survives_the_wire_with_everything_that_was_noted():
    cell = recorder(provider="cloud-a")
    cell.count_request(3)
    cell.count_result()
    cell.count_result(base_late=True)
    cell.count_result(error=True)
    cell.record_latency(20.0)
    wide = cell.route("wide")
    wide.count_work(2)
    wide.count_retry()
    wide.record_answer(10.0)
    wide.record_answer(30.0, is_late=True)
    wide.record_lost(500.0)
    wide.record_queue_wait(4.0)
    wide.add_busy(1_500, 256)
    wide.record_pressure(0.25)
    wide.set_model_version("v1")

    sent = cell.close(2_500, num_waiting=7, cpu_share=0.5)
    interval = decode_as(encode(sent), LatencyInterval)

    assert interval == sent
    assert (interval.cell, interval.source, interval.part, interval.epoch_ms) == (
        "us-east",
        "router-1",
        "router",
        1_000,
    )
    assert (interval.seq, interval.event_time_ms, interval.interval_ms) == (0, 2_500, 1_500)
    assert (interval.num_requests, interval.num_results) == (3, 3)
    assert (interval.num_base_late, interval.num_errors, interval.num_waiting) == (1, 1, 7)
    assert (interval.cpu_share, interval.provider) == (0.5, "cloud-a")
    assert histogram_of(interval.latency).quantile(1.0) == pytest.approx(20.0, rel=0.01)
    [route] = interval.routes
    assert (route.route, route.model_version, route.pressure) == ("wide", "v1", 0.25)
    assert (route.num_work, route.num_answered, route.num_late, route.num_lost, route.num_retried) == (2, 2, 1, 1, 1)
    assert (route.busy_us, route.units_done) == (1_500, 256)
    assert histogram_of(route.latency).count == 3
    assert histogram_of(route.latency).quantile(1.0) == pytest.approx(500.0, rel=0.03)
    assert histogram_of(route.queue_wait).quantile(0.5) == pytest.approx(4.0, rel=0.01)


def test_closing_starts_anew_and_numbers_on():
    cell = recorder()
    cell.count_request()
    cell.route("baseline").count_work()
    cell.close_item("rma", "admitted", units=64, value_micro=10)
    cell.close(2_000)

    assert cell.is_idle
    second = cell.close(3_200)
    assert (second.seq, second.interval_ms, second.num_requests) == (1, 1_200, 0)
    assert second.routes == []
    assert second.accounts == []
    assert second.latency.count == 0


def test_a_clock_that_was_set_back_gives_no_negative_length():
    cell = recorder(epoch_ms=5_000)
    assert cell.close(4_000).interval_ms == 0


def test_the_largest_pressure_is_reported_and_negative_times_count_as_none():
    cell = recorder()
    cell.route("wide").record_pressure(0.9)
    cell.route("wide").record_pressure(0.1)
    cell.route("wide").record_answer(-3.0)
    [route] = cell.close(2_000).routes
    assert route.pressure == 0.9
    assert (route.latency.count, route.latency.zero_count) == (1, 1)


def test_asking_for_a_route_makes_it_appear_even_when_idle():
    cell = recorder()
    cell.route("wide")
    cell.route("baseline")
    assert [route.route for route in cell.close(2_000).routes] == ["baseline", "wide"]


@pytest.mark.parametrize(
    ("state", "arguments"),
    [
        ("pending", {}),
        ("shed", {}),
        ("admitted", {"reason": "pressure"}),
        ("late", {"units": -1}),
        ("lost", {"value_micro": -1}),
    ],
)
def test_an_end_that_would_unbalance_the_account_is_refused(state, arguments):
    cell = recorder()
    with pytest.raises(ValueError, match=r"state|negative"):
        cell.close_item("rma", state, **{"units": 1, "value_micro": 1, **arguments})
    assert cell.close(2_000).accounts == []


ENDS = st.tuples(
    st.sampled_from(["rma", "sbm"]),
    st.sampled_from(["admitted", "late", "lost", "shed"]),
    st.sampled_from(["pressure", "gate_closed", "deadline"]),
    st.integers(0, 4_096),
    st.integers(0, 10**12),
    st.booleans(),
)


@given(st.lists(ENDS, max_size=60))
def test_accounts_add_up_over_any_split_into_intervals(ends):
    cell = recorder()
    intervals = []
    for lever, state, reason, units, value_micro, closes in ends:
        cell.close_item(lever, state, reason=reason if state == "shed" else "", units=units, value_micro=value_micro)
        if closes:
            intervals.append(cell.close(2_000))
    intervals.append(cell.close(2_000))

    accounts = [account for interval in intervals for account in interval.accounts]
    for account in accounts:
        shed = sum(part.units for part in account.sheds)
        shed_value = sum(part.value_micro for part in account.sheds)
        assert account.offered == account.admitted + shed + account.late + account.lost
        assert account.offered_value_micro == (
            account.admitted_value_micro + shed_value + account.late_value_micro + account.lost_value_micro
        )
    for lever in ("rma", "sbm"):
        mine = [account for account in accounts if account.lever == lever]
        given_units = {
            state: sum(end[3] for end in ends if end[:2] == (lever, state)) for state in ("admitted", "late", "lost")
        }
        assert sum(account.admitted for account in mine) == given_units["admitted"]
        assert sum(account.late for account in mine) == given_units["late"]
        assert sum(account.lost for account in mine) == given_units["lost"]
        for reason in ("pressure", "gate_closed", "deadline"):
            assert sum(p.units for a in mine for p in a.sheds if p.reason == reason) == sum(
                end[3] for end in ends if end[:3] == (lever, "shed", reason)
            )
    assert [interval.seq for interval in intervals] == list(range(len(intervals)))


def test_no_bid_makes_an_account_that_cannot_be_written() -> None:
    recorder = IntervalRecorder("us-east", source="router-1", part="router", epoch_ms=0)
    for _ in range(20):
        for state in ("admitted", "late", "lost"):
            recorder.close_item("rma", state, units=1, value_micro=2**62)
        recorder.close_item("rma", "shed", reason="pressure", units=1, value_micro=2**62)
    (account,) = decode_as(encode(recorder.close(1_000)), LatencyInterval).accounts
    assert account.offered_value_micro == 4 * MAX_VALUE_MICRO
