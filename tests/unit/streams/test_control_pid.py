"""The terms of one step by hand, the error's two halves, gains, merged windows, and states of older releases."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.histogram import ExponentialHistogram
from schemas.records import CellLimits, HistogramFields
from streams.control import evidence
from streams.control.error import ROOM, WORST, latency_error, shed_error, worst_error
from streams.control.evidence import Evidence
from streams.control.facts import LatencyFacts
from streams.control.gains import DEFAULT_GAINS, Gains
from streams.control.pid import Memory, Slew, step
from tests.unit.streams.control_makers import histogram

FREE = Slew(rise=1.0)


def moved(error, **changes):
    figures = {"position": 0.5, "ceiling": 1.0, "memory": None, "gains": DEFAULT_GAINS, "slew": FREE}
    return step(error, **{**figures, **changes})


def test_the_integral_is_by_error_position_and_pace():
    assert moved(-0.4).position == pytest.approx(0.5 - 0.5 * 0.18 * 0.4)
    assert moved(0.4, slew=Slew(rise=0.1)).position == pytest.approx(0.5 + 0.5 * 0.8 * 0.1 * 0.4)
    assert moved(0.4, position=0.01, slew=Slew(rise=0.1)).position == pytest.approx(0.01 + 0.1 * 0.8 * 0.1 * 0.4)


def test_the_proportional_term_is_by_the_change_of_the_error():
    gains = Gains(proportional=0.2, derivative=0.0)
    made = moved(-0.5, memory=Memory(error=-0.1, slope=0.0), gains=gains)
    assert made.proportional == pytest.approx(0.5 * 0.2 * -0.4)


def test_the_derivative_is_of_the_filtered_measurement():
    gains = Gains(proportional=0.0, derivative=0.3, derivative_filter_ticks=3.0)
    made = moved(-0.5, memory=Memory(error=-0.1, slope=0.2), gains=gains)
    # (3 x 0.2 + 0.4) / 4: the measurement rises by 0.4, and a quarter of it shows at once.
    assert made.memory is not None
    assert (made.memory.error, made.memory.slope) == (-0.5, pytest.approx(0.25))
    assert made.derivative == pytest.approx(-0.5 * 0.3 * (0.25 - 0.2))


def test_a_first_step_has_no_difference():
    made = moved(-0.5)
    assert (made.proportional, made.derivative) == (0.0, 0.0)
    assert made.memory == Memory(error=-0.5, slope=0.0)


def test_up_is_bound_and_down_is_not():
    slew = Slew(rise=0.05)
    assert (
        moved(
            ROOM, slew=slew, gains=Gains(rise_integral=1.0, proportional=1.0), memory=Memory(error=0, slope=0.0)
        ).position
        == 0.55
    )
    assert moved(WORST, slew=slew).position == 0.0


def test_with_room_left_falls_are_bound_like_rises():
    made = moved(0.1, slew=Slew(rise=0.05), memory=Memory(error=ROOM, slope=0.0), gains=Gains(proportional=1.0))
    assert made.position == pytest.approx(0.45)


def test_beyond_the_limit_nothing_rises_however_much_better_it_got():
    made = moved(-0.1, memory=Memory(error=WORST, slope=5.0), gains=Gains(proportional=1.0))
    assert made.position == 0.5


def test_at_base_nothing_is_remembered_and_at_the_ceiling_nothing_is_stored():
    assert moved(WORST).memory is None
    assert moved(ROOM, ceiling=0.5).position == 0.5
    assert moved(ROOM, ceiling=0.2).position == 0.2


@pytest.mark.parametrize("error", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_moves_nothing_and_is_not_remembered(error):
    memory = Memory(error=0.3, slope=0.1)
    made = moved(error, memory=memory)
    assert (made.position, made.memory) == (0.5, memory)


@given(
    error=st.floats(WORST, ROOM),
    position=st.floats(0.0, 1.0),
    ceiling=st.floats(0.0, 1.0),
    before=st.floats(WORST, ROOM),
    slope=st.floats(-25.0, 25.0),
    rise=st.floats(0.0, 1.0),
)
def test_every_step_stays_in_bounds_and_rises_by_its_share(error, position, ceiling, before, slope, rise):
    memory = Memory(error=before, slope=slope)
    made = moved(error, position=position, ceiling=ceiling, memory=memory, slew=Slew(rise=rise))
    assert 0.0 <= made.position <= ceiling
    assert made.position <= position + rise
    assert error >= 0.0 or made.position <= position
    if made.memory is not None:
        assert abs(made.memory.slope) <= 25.0


def test_errors_count_factors_the_same_both_ways():
    assert latency_error(50.0, setpoint_ms=100.0) == 1.0
    assert latency_error(200.0, setpoint_ms=100.0) == -1.0
    assert latency_error(100.0, setpoint_ms=100.0) == 0.0
    assert latency_error(0.0, setpoint_ms=100.0) == ROOM
    assert latency_error(1e12, setpoint_ms=100.0) == WORST
    assert latency_error(1e12, setpoint_ms=0.0) == WORST


@given(ratio=st.floats(0.2, 1.0))
def test_the_latency_error_is_odd_in_the_logarithm(ratio):
    below, above = latency_error(ratio, setpoint_ms=1.0), latency_error(1.0 / ratio, setpoint_ms=1.0)
    assert below == pytest.approx(-above)


def test_the_shed_error_has_room_a_band_of_nothing_and_a_pull():
    assert [shed_error(share, allowance=0.01) for share in (0.0, 0.005, 0.006, 0.01)] == [ROOM, ROOM, 0.0, 0.0]
    assert shed_error(0.505, allowance=0.01) == pytest.approx(-1.0)
    assert shed_error(1.0, allowance=0.01) == WORST
    assert shed_error(1.0, allowance=1.0) == 0.0
    assert shed_error(1e-9, allowance=0.0) < 0.0


def test_the_worse_error_counts_and_is_named():
    limits = CellLimits(base_candidates=1, max_candidates=2, latency_limit_ms=100.0)
    assert worst_error(
        45.0, shed_share=0.0, upstream_p99_ms=None, limits=limits, gains=DEFAULT_GAINS
    ).value == pytest.approx(1.0)
    assert (
        worst_error(45.0, shed_share=0.9, upstream_p99_ms=None, limits=limits, gains=DEFAULT_GAINS).cause == "shedding"
    )
    assert (
        worst_error(900.0, shed_share=0.2, upstream_p99_ms=None, limits=limits, gains=DEFAULT_GAINS).cause == "latency"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"setpoint_share": 0.0},
        {"setpoint_share": 1.1},
        {"proportional": -0.1},
        {"integral": 0.0},
        {"rise_integral": math.nan},
        {"derivative": math.inf},
        {"derivative_filter_ticks": -1.0},
        {"derivative_filter_ticks": math.inf},
        {"gain_floor": 0.0},
        {"shed_hold_ticks": -1},
        {"min_samples": 0},
    ],
)
def test_gains_that_could_not_steer_are_refused_by_name(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        Gains(**changes)


def seen(index, values_ms, *, offered=0, dropped=0, upstream_ms=None) -> Evidence:
    """What one window says."""
    return evidence.of_requests(
        LatencyFacts(
            window_index=index,
            source_partition=3,
            num_routers=1,
            num_requests=len(values_ms),
            latency=histogram(values_ms),
            offered=offered,
            dropped=dropped,
            wide_busy_us=0,
            wide_units_done=0,
            upstream=histogram(upstream_ms) if upstream_ms is not None else None,
        )
    )


def test_merged_windows_are_what_one_window_of_all_would_be():
    merged = Evidence()
    for index, values in enumerate([[10.0, 20.0], [30.0], [900.0, 0.0]]):
        merged = evidence.gathered(merged, seen(index, values, offered=10, dropped=index))
    whole = ExponentialHistogram()
    whole.record_many([10.0, 20.0, 30.0, 900.0, 0.0])
    assert merged.latency == HistogramFields(**whole.to_fields())
    assert evidence.num_samples(merged) == 5
    assert evidence.p99_ms(merged) == pytest.approx(900.0, rel=0.05)
    assert evidence.shed_share(merged) == 0.1
    assert [ref.window_index for ref in merged.windows] == [0, 1, 2]


def test_upstream_times_are_merged_too_where_anyone_says_them():
    merged = Evidence()
    for index, upstream_ms in enumerate([None, [10.0, 20.0], None, [90.0]]):
        merged = evidence.gathered(merged, seen(index, [5.0], upstream_ms=upstream_ms))
    assert evidence.num_upstream_samples(merged) == 3
    assert evidence.upstream_p99_ms(merged) == pytest.approx(90.0, rel=0.05)
    assert evidence.upstream_p99_ms(evidence.gathered(Evidence(), seen(0, [5.0]))) is None


def test_windows_that_say_nothing_are_not_among_them():
    merged = evidence.gathered(evidence.gathered(Evidence(), seen(4, [5.0])), seen(5, []))
    assert [ref.window_index for ref in merged.windows] == [4]


def test_what_is_too_old_is_left_behind():
    first = evidence.gathered(Evidence(), seen(10, [5.0]))
    last = evidence.gathered(first, seen(10 + evidence.MAX_WINDOWS - 1, [6.0]))
    assert evidence.num_samples(last) == 2
    late = evidence.gathered(first, seen(10 + evidence.MAX_WINDOWS, [6.0]))
    assert [ref.window_index for ref in late.windows] == [10 + evidence.MAX_WINDOWS]


def test_more_than_one_histogram_can_hold_starts_with_the_newest():
    huge = HistogramFields(
        scale=0, offset=0, counts=(2**53).to_bytes(8, "little"), zero_count=0, count=2**53, sum_micro=1
    )
    full = evidence.gathered(Evidence(), msgspec.structs.replace(seen(1, [5.0]), latency=huge))
    assert [ref.window_index for ref in evidence.gathered(full, seen(2, [5.0])).windows] == [2]


def test_nothing_says_nothing():
    assert (evidence.num_samples(Evidence()), evidence.p99_ms(Evidence())) == (0, None)
    assert evidence.shed_share(Evidence()) == 0.0
