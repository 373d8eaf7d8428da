"""What nobody in their senses reports must neither end a controller nor leave a state that cannot be read again."""

import struct

import msgspec
import pytest

from schemas.errors import RecordError
from schemas.histogram import ExponentialHistogram
from schemas.records import (
    AcceleratorFit,
    CellLimits,
    CurvePoint,
    HistogramFields,
    LeverTerms,
    ReporterFigures,
    RouteWindow,
    SegmentTraffic,
    ValueCurve,
)
from streams.control.coverage import mix
from streams.control.coverage.mix import Mix
from streams.control.processor import MAX_PENDING, MAX_PENDING_BYTES, apply
from streams.control.state import CellState, encode_state
from streams.ingest.histograms import believe_histogram
from tests.unit.streams.control_makers import capacity_window, histogram, latency_window

MOST = 2**62


def beyond(exponent: int) -> HistogramFields:
    """Forty values in the bucket up to 2 to that power."""
    return HistogramFields(
        scale=0, offset=exponent - 1, counts=struct.pack("<q", 40), zero_count=0, count=40, sum_micro=2**40
    )


def merged(parts):
    whole = ExponentialHistogram()
    for part in parts:
        whole.add_fields(**msgspec.structs.asdict(part))
    return HistogramFields(**whole.to_fields())


def with_latency(window, **changes):
    return msgspec.structs.replace(window, latency=msgspec.structs.replace(window.latency, **changes))


def after(*windows):
    state = CellState(cell="us-east")
    for window in windows:
        state, _ = apply(state, window)
    return state


def test_values_that_nobody_can_measure_are_refused_at_intake():
    believe_histogram(beyond(44), field="latency")
    with pytest.raises(RecordError, match="offset"):
        believe_histogram(beyond(45), field="latency")


def test_reporters_that_answered_more_than_there_are_values_are_left_out():
    parts = [histogram([20.0] * 40) for _ in range(4)] + [histogram([0.05] * 40)] * 2
    figures = [
        ReporterFigures(
            source=f"r{n}",
            num_work=40,
            num_answered=MOST if n >= 4 else 40,
            p99_us=50 if n >= 4 else 20_000,
            busy_us=0,
            units_done=0,
        )
        for n in range(6)
    ]
    route = RouteWindow(
        part="router",
        route="powerful",
        latency=merged(parts),
        queue_wait=histogram([]),
        num_reporters=6,
        num_work=240,
        num_answered=240,
        num_late=0,
        num_lost=0,
        num_retried=0,
        busy_us=0,
        units_done=0,
        max_pressure_micro=0,
        reporters=figures,
    )
    window = latency_window(1)
    assert window.latency is not None
    assert after(with_latency(window, routes=[*window.latency.routes, route])).last_latency == 1


def test_ever_new_segments_of_absurd_size_leave_a_state_that_can_be_read():
    seen = Mix()
    for number in range(40):
        window = tuple(
            SegmentTraffic(segment=f"s{number}-{n}", num_requests=mix.MAX_COUNTED, num_allowed=mix.MAX_COUNTED)
            for n in range(mix.MAX_SEGMENTS)
        )
        seen = mix.updated(seen, window)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(seen), type=Mix) == seen


def test_windows_that_wait_are_bounded_in_bytes():
    points = [CurvePoint(work_units_s=1e5 * n, value_s=10.0 * n) for n in range(1, 6)]
    curves = [ValueCurve(segment=f"advertiser-segment-{n}", points=points) for n in range(64)]
    terms = LeverTerms(lever="rma", fits=[AcceleratorFit(accelerator="a100", units_per_unit_s=5e4)], curves=curves)
    limits = CellLimits(base_candidates=100, max_candidates=600, latency_limit_ms=150.0, levers=[terms])
    state = after(*(capacity_window(index, limits=limits) for index in range(1, MAX_PENDING + 1)))
    assert 1 < len(state.pending_capacity) < MAX_PENDING
    assert state.pending_capacity[-1].window_index == MAX_PENDING
    assert len(encode_state(state)) < MAX_PENDING_BYTES + 100_000
    # The newest ones still meet their partners.
    assert apply(state, latency_window(MAX_PENDING))[0].last_tick == MAX_PENDING
