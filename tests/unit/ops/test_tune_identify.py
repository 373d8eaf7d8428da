"""Identification gives a process back from its own answers, and margins are those of loops known in closed form."""

import math

import numpy as np
import pytest

from ops.tune.choose import Place, both_margins, holds, recommended, worst
from ops.tune.identify import Process, Wave, fitted, misfit, step_response_J
from ops.tune.margins import Terms, margins, open_loop_W, terms
from streams.control.gains import DEFAULT_GAINS, Gains

PROCESSES = [
    Process(gain=-3.5, dead_ticks=0.76, lag_ticks=0.2),
    Process(gain=-1.0, dead_ticks=0.3, lag_ticks=1.5),
    Process(gain=-12.0, dead_ticks=2.4, lag_ticks=1.0),
]


def answered(process: Process, wave: Wave, *, noise: float = 0.0) -> np.ndarray:
    """Errors of a wave's windows, each the sum of the answers to all steps before it."""
    positions = wave.positions_K()
    response = process.response_J(len(positions))
    errors = np.zeros(len(positions))
    for tick in np.flatnonzero(np.diff(positions)) + 1:
        errors[tick + 1 :] += (positions[tick] - positions[tick - 1]) * response[: len(positions) - tick - 1]
    return errors + noise * np.random.default_rng(7).standard_normal(len(positions))


@pytest.mark.parametrize("process", PROCESSES)
def test_gain_dead_time_and_lag_come_back_from_a_wave(process):
    wave = Wave(level=0.5, amplitude=0.05, half_ticks=16)
    response = step_response_J(wave, answered(process, wave))
    found = fitted(response)
    assert found.gain == pytest.approx(process.gain, rel=0.02)
    assert found.dead_ticks == pytest.approx(process.dead_ticks, abs=0.05)
    assert found.lag_ticks == pytest.approx(process.lag_ticks, rel=0.05)
    assert misfit(found, response) < 0.01


def test_noise_averages_out_over_the_edges_of_a_wave():
    process = PROCESSES[0]
    wave = Wave(level=0.5, amplitude=0.05, num_periods=20)
    # A tenth of the swing.
    found = fitted(step_response_J(wave, answered(process, wave, noise=0.035)))
    assert found.gain == pytest.approx(process.gain, rel=0.1)
    assert found.dead_ticks + found.lag_ticks == pytest.approx(0.96, abs=0.25)


def test_curvature_alike_in_both_directions_cancels():
    process, wave = PROCESSES[0], Wave(level=0.5, amplitude=0.05)
    errors = answered(process, wave)
    assert fitted(step_response_J(wave, errors + 3.0)).gain == pytest.approx(process.gain, rel=0.02)


@pytest.mark.parametrize("errors", [np.zeros(3), np.full(56, math.nan)])
def test_errors_that_are_not_the_waves_are_refused(errors):
    with pytest.raises(ValueError, match="every window"):
        step_response_J(Wave(level=0.5, amplitude=0.1), errors)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_transfer_function_is_that_of_the_step_response(process):
    omega = 0.7
    q = np.exp(-1j * omega)
    over, under = process.polynomials()
    steps = process.response_J(2_000)
    pulses = np.diff(steps, prepend=0.0)
    by_pulses = (pulses * q ** np.arange(1, 2_001)).sum()
    assert np.polyval(over[::-1], q) / np.polyval(under[::-1], q) == pytest.approx(by_pulses, rel=1e-9)


@pytest.mark.parametrize("integral", [0.18, 0.63, 1.5])
def test_margins_of_an_integral_over_one_tick_are_those_of_its_formula(integral):
    # L = k q / (1 - q): |L| = k / (2 sin(w / 2)), arg L = -90 degrees - w / 2; real at w = pi.
    found = margins(Process(gain=-1.0, dead_ticks=0.0, lag_ticks=0.0), Terms(proportional=0.0, integral=integral))
    assert found.gain == pytest.approx(2.0 / integral, rel=1e-6)
    assert found.phase_deg == pytest.approx(90.0 - math.degrees(math.asin(integral / 2.0)), abs=0.01)
    assert found.sensitivity == pytest.approx(1.0 / (1.0 - integral / 2.0), rel=1e-6)
    assert found.is_stable


def test_margins_of_an_integral_over_two_ticks_are_those_of_its_formula():
    # One tick more of dead time: arg L = -90 degrees - 3 w / 2, so real at w = pi / 3, where |L| = k.
    found = margins(Process(gain=-1.0, dead_ticks=1.0, lag_ticks=0.0), Terms(proportional=0.0, integral=0.5))
    assert found.gain == pytest.approx(2.0, rel=1e-4)
    assert found.phase_deg == pytest.approx(90.0 - 3.0 * math.degrees(math.asin(0.25)), abs=0.01)


@pytest.mark.parametrize(("integral", "is_stable"), [(1.99, True), (2.01, False)])
def test_stability_is_that_of_the_roots(integral, is_stable):
    process = Process(gain=-1.0, dead_ticks=0.0, lag_ticks=0.0)
    found = margins(process, Terms(proportional=0.0, integral=integral))
    assert found.is_stable is is_stable
    assert (found.gain > 1.0) is is_stable
    assert (found.phase_deg > 0.0) is is_stable


def test_all_three_terms_are_those_of_the_step_that_runs():
    """A pulse of error through ``pid.step`` and through C(q) gives the same moves."""
    from streams.control.pid import Memory, Slew, step

    gains = Gains(proportional=0.2, integral=0.3, derivative=0.1, derivative_filter_ticks=2.0)
    memory, position, moves = Memory(error=0.0, slope=0.0), 0.5, []
    for error in [-0.01] + [0.0] * 30:
        moved = step(error, position=0.5, ceiling=1.0, memory=memory, gains=gains, slew=Slew(rise=1.0))
        assert moved.memory is not None
        memory = moved.memory
        moves.append(moved.position - position)
    over, under = terms(gains, position=0.5, rise_share=None).polynomials()
    # Divide as power series: C(q) (1 - q) is the moves' answer to a pulse.
    series = np.zeros(31)
    series[: len(over)] = over
    bottom = under[:2] * 0.0 + np.array([gains.derivative_filter_ticks + 1.0, -gains.derivative_filter_ticks])
    for place in range(31):
        series[place] /= bottom[0]
        if place + 1 < 31:
            series[place + 1] -= bottom[1] * series[place]
    assert moves == pytest.approx(-0.01 * series, abs=1e-12)


def test_ten_times_the_gain_is_called_unstable():
    place = Place(process=Process(gain=-3.5, dead_ticks=0.8, lag_ticks=0.15), position=0.8, rise_share=0.1)
    assert holds(worst([place], DEFAULT_GAINS))
    tenfold = Gains(integral=1.0, rise_integral=1.0, proportional=10.0 * 0.05)
    bolder = Place(
        process=Process(gain=10.0 * place.process.gain, dead_ticks=0.8, lag_ticks=0.15), position=0.8, rise_share=0.1
    )
    for found in (worst([place], tenfold), worst([bolder], DEFAULT_GAINS)):
        assert not found.is_stable
        assert not holds(found)
        assert found.gain < 1.0


def test_recommended_gains_keep_their_margins_and_more_would_not():
    places = [
        Place(process=Process(gain=-6.0, dead_ticks=0.8, lag_ticks=0.1), position=0.9, rise_share=0.5),
        Place(process=Process(gain=-2.0, dead_ticks=0.8, lag_ticks=0.1), position=0.3, rise_share=0.1),
    ]
    gains = recommended(places)
    assert gains.proportional == gains.derivative == 0.0
    assert holds(worst(places, gains))
    for name in ("integral", "rise_integral"):
        bolder = Gains(**{**vars(gains), name: 1.2 * getattr(gains, name)})
        assert not holds(worst(places, bolder))


def test_a_lag_of_ticks_earns_a_proportional_gain():
    place = Place(process=Process(gain=-3.0, dead_ticks=0.5, lag_ticks=2.0), position=0.9, rise_share=0.1)
    gains = recommended([place])
    assert gains.proportional == pytest.approx(2.0 * gains.integral)
    fall, rise = both_margins(place, gains)
    assert holds(fall)
    assert holds(rise)


def test_a_loop_that_nothing_answers_has_nothing_to_lose():
    found = margins(Process(gain=0.0, dead_ticks=0.0, lag_ticks=0.1), Terms(proportional=0.0, integral=1.0))
    assert (found.gain, found.phase_deg, found.is_stable) == (math.inf, 180.0, True)


def test_the_open_loop_ends_on_the_real_axis():
    loop = open_loop_W(PROCESSES[1], terms(DEFAULT_GAINS, position=0.5, rise_share=None))
    assert loop[-1].imag == pytest.approx(0.0, abs=1e-12)
