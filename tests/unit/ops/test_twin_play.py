"""What is fixed of a cell before its first window: rates, copies, days, recordings."""

from dataclasses import replace

import numpy as np
import pytest

from ops.simulator.twin_settings import Day, Surge
from ops.twin.play import cell_play, num_cells
from tests.unit.ops.twin_makers import scenario


def test_rates_come_up_over_the_warm_up_and_are_the_scenarios_then():
    made = scenario("cpu-starved")
    rates = cell_play(made, 0).schedule.rates_K
    assert len(rates) == 192
    assert rates[0] < 0.1 * 120.0
    assert np.all(np.diff(rates[:9]) > 0.0)
    assert rates[9:] == pytest.approx(120.0)


def test_surges_and_days_shape_the_rate():
    made = scenario(
        "cpu-starved",
        surges=(Surge(at_s=300.0, duration_s=100.0, rate_factor=2.0, speed_factor=0.5),),
        day=Day(period_s=1_800.0, swing=0.5, peak_s=0.0),
    )
    schedule = cell_play(made, 0).schedule
    warm = 12
    assert schedule.rates_K[warm] == pytest.approx(120.0 * 1.5, rel=0.01)
    assert schedule.rates_K[warm + 90] == pytest.approx(120.0 * 0.5, rel=0.01)
    assert schedule.speed_K[warm + 30 : warm + 40] == pytest.approx(0.5)
    assert schedule.speed_K[warm + 40] == 1.0
    before, within = schedule.rates_K[warm + 29], schedule.rates_K[warm + 30]
    assert within / before == pytest.approx(2.0, rel=0.05)


def test_copies_are_cells_of_their_own_with_their_day_shifted():
    made = scenario("fleet", duration_s=3_600.0, copies=4)
    assert num_cells(made) == 4
    plays = [cell_play(made, number) for number in range(4)]
    assert [play.name for play in plays] == ["us-east.0", "us-east.1", "us-east.2", "us-east.3"]
    assert len({play.events for play in plays}) == 4
    assert len({play.schedule.nums_K.tobytes() for play in plays}) == 4
    means = [float(play.schedule.rates_K.mean()) for play in plays]
    assert max(means) > 1.5 * min(means)
    again = cell_play(made, 2)
    assert again.events == plays[2].events
    assert np.array_equal(again.schedule.nums_K, plays[2].schedule.nums_K)


def test_the_first_copy_is_the_cell_as_the_demo_would_play_it():
    single, fleet = scenario("fleet", duration_s=3_600.0, copies=1), scenario("fleet", duration_s=3_600.0, copies=3)
    assert cell_play(single, 0).events == cell_play(fleet, 0).events


def test_a_recording_is_played_over_and_over_at_the_scenarios_mean():
    shape = np.array([0.0, 4.0, 1.0, 3.0])
    made = scenario("cpu-starved", shape=(shape / shape.mean()).astype("<f8").tobytes(), shape_step_s=5.0)
    rates = cell_play(made, 0).schedule.rates_K[12:]
    # Windows of ten seconds are two steps each: means of 2 and 2, relative to a mean of 2.
    assert rates == pytest.approx(120.0)
    made = scenario("cpu-starved", shape=(shape / shape.mean()).astype("<f8").tobytes(), shape_step_s=10.0)
    assert cell_play(made, 0).schedule.rates_K[12:16] == pytest.approx(120.0 * np.array([0.0, 2.0, 0.5, 1.5]))


def test_bursts_have_the_mean_rate_in_the_long_run():
    bursty = scenario("cpu-starved", duration_s=86_400.0)
    arrivals = replace(bursty.arrivals, process="bursty", mean_burst_s=20.0, mean_quiet_s=60.0)
    rates = cell_play(replace(bursty, arrivals=arrivals), 0).schedule.rates_K[12:]
    assert rates.mean() == pytest.approx(120.0, rel=0.05)
    assert rates.max() > 2.0 * rates.min()


def test_without_noise_requests_come_as_expected():
    made = scenario("cpu-starved", noise=False)
    schedule = cell_play(made, 0).schedule
    assert np.array_equal(schedule.nums_K, np.rint(schedule.rates_K * 10.0))
