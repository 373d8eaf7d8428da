"""Value curves from what was drawn: near the truth, concave, and silent while too little is known."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import AcceleratorFit, CellLimits, CurvePoint, LeverTerms, ValueCurve
from streams.control.uplift.cohorts import matured
from streams.control.uplift.curves import _fitted, _Point, depth_values, extras_curve, lever_curves, requests_per_s
from streams.control.uplift.exploration import segment_gains
from streams.control.uplift.state import ALL, MeasurementState
from streams.control.uplift.taking_in import take_in
from tests.measured_world import MeasuredWorld, Segment, WorldSettings

SEGMENTS = (
    Segment(name="finance", weight=0.5, worth=2.0, upgrade=0.1, extras=0.6, click_rate=1.0),
    Segment(name="travel", weight=0.5, worth=1.0, upgrade=0.5, extras=0.6, click_rate=1.0),
)
SETTINGS = WorldSettings(num_requests=15_000, num_users=9_000, tail=0.5, max_delay=0, attribution=1, drift=0.0)
FIT = AcceleratorFit(accelerator="a", units_per_unit_s=1_000.0)


def _limits(*curves: ValueCurve) -> CellLimits:
    return CellLimits(
        base_candidates=64,
        max_candidates=564,
        latency_limit_ms=100.0,
        units_per_upgrade=64.0,
        levers=[
            LeverTerms(lever="rma", fits=[FIT], curves=list(curves)),
            LeverTerms(lever="sbm", fits=[FIT], curves=list(curves)),
        ],
    )


def _measured(num_ticks: int) -> MeasurementState:
    world, state = MeasuredWorld(SEGMENTS, seed=3, settings=SETTINGS), MeasurementState()
    for _ in range(num_ticks):
        tick = world.tick({"finance": 0.4, "travel": 0.4})
        for window in tick.windows:
            state = take_in(state, window)
        state = matured(state, tick.end_ms, window_index=tick.window_index)
    return state


@pytest.fixture(scope="module")
def state() -> MeasurementState:
    return _measured(16)


def test_the_curve_of_extras_is_near_the_truth_where_it_was_measured_and_goes_on_concave(state):
    curve = extras_curve(state.of(ALL), state, most_extras=500)
    assert curve is not None
    half, full, most = curve.points
    rate_s = 0.8 * SETTINGS.num_requests / 60.0
    assert half.work_units_s == pytest.approx(100.0 * rate_s, rel=0.05)
    assert full.work_units_s == pytest.approx(200.0 * rate_s, rel=0.05)
    assert most.work_units_s == pytest.approx(500.0 * rate_s, rel=0.05)
    # A request is worth 1.5; all extras add 0.6 of that, half of them the square root of a half of it.
    for point, share in ((half, 0.5**0.5), (full, 1.0)):
        assert abs(point.value_s - 0.9 * share * rate_s) < 3.0 * point.error_s + 0.05 * point.value_s
    assert 0.0 < full.error_s < 0.2 * full.value_s
    slopes = [
        (two.value_s - one.value_s) / (two.work_units_s - one.work_units_s)
        for one, two in pairwise([CurvePoint(work_units_s=0.0, value_s=0.0), *curve.points])
    ]
    assert slopes == sorted(slopes, reverse=True)
    assert slopes[-1] > 0.0
    assert most.error_s / most.value_s == pytest.approx(full.error_s / full.value_s)


def test_depths_are_told_to_routers_by_position_and_never_rise(state):
    told = depth_values(state, base_candidates=64)
    assert [point.position for point in told] == pytest.approx([64 + 50, 64 + 150], abs=2)
    assert told[0].clicks >= told[1].clicks > 0.0
    # Clicks that all extras add to one request, over 200 of them: about 0.6 / 200 = 0.003.
    assert 0.5 * (told[0].clicks + told[1].clicks) == pytest.approx(0.003, rel=0.15)


def test_each_segment_has_a_line_of_upgrades(state):
    gains = segment_gains(state)
    curves = lever_curves(state, gains, limits=_limits())["sbm"]
    assert [curve.segment for curve in curves] == ["finance", "travel"]
    for curve, segment in zip(curves, SEGMENTS, strict=True):
        (point,) = curve.points
        rate_s = 0.8 * 0.5 * SETTINGS.num_requests / 60.0
        assert point.work_units_s == pytest.approx(64.0 * rate_s, rel=0.08)
        assert point.value_s == pytest.approx(gains[segment.name].effect * rate_s, rel=0.08)
        assert abs(point.value_s - segment.gain * rate_s) < 3.0 * point.error_s


def test_a_prior_stands_until_what_is_measured_says_more_than_its_error():
    state = _measured(6)
    claimed = ValueCurve(segment=ALL, points=[CurvePoint(work_units_s=1e6, value_s=1e6)])
    known = lever_curves(state, segment_gains(state), limits=_limits())
    # Beside a bold prior the same error is small: it is known well enough that the prior is wrong.
    bold = lever_curves(state, segment_gains(state), limits=_limits(claimed))
    assert known.keys() <= bold.keys() == {"rma", "sbm"}
    assert lever_curves(MeasurementState(), {}, limits=_limits(claimed)) == {}


def test_requests_per_second_are_those_of_whole_cohorts(state):
    assert requests_per_s(state.of(ALL), state) == pytest.approx(SETTINGS.num_requests / 60.0, rel=0.03)
    assert requests_per_s(MeasurementState().of(ALL), state) == 0.0


FIGURES = st.floats(-10.0, 10.0)
ERRORS = st.floats(0.01, 10.0)


@given(half=FIGURES, full=FIGURES, half_error=ERRORS, full_error=ERRORS)
def test_a_fit_is_concave_and_never_falls_and_leaves_alone_what_is(half, full, half_error, full_error):
    points = [_Point(100.0, half, half_error), _Point(200.0, full, full_error)]
    fitted = _fitted(points)
    one, two = fitted
    assert 0.0 <= two.gain - one.gain <= one.gain + 1e-9
    assert min(one.error, two.error) > 0.0
    if 0.0 <= full - half <= half:
        assert fitted == points
    # No fit lies outside what was measured, but for zero.
    assert min(0.0, half, full) - 1e-9 <= one.gain <= max(0.0, half, full) + 1e-9
    # Nor is it surer than both measurements together could be.
    assert two.error >= min(full_error, half_error) * 0.5
