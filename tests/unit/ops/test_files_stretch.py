"""Which stretch of arrivals is played: what is given holds, what is not is chosen, and silence stays silence."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ops.simulator.files.stretch import MAX_CHOSEN_BURST, MAX_CHOSEN_RATE, NothingThere, Stretch, choose_stretch, play
from ops.simulator.files.wanted import WantedArrivals

SPAN_S = 20.0


def every(gap_s: float, *, until_s: float, from_s: float = 0.0) -> NDArray[np.float64]:
    return np.arange(from_s, until_s, gap_s)


def chosen(times_s: NDArray[np.float64], *, rate_per_s: float = 10.0, **given: float) -> Stretch:
    wanted = WantedArrivals(path="t", **given)
    return choose_stretch(times_s, wanted, span_s=SPAN_S, rate_per_s=rate_per_s)


def played(times_s: NDArray[np.float64], stretch: Stretch, *, seed: int = 1) -> NDArray[np.float64]:
    return play(times_s, stretch, span_s=SPAN_S, rng=np.random.default_rng(seed))


def test_given_factors_hold() -> None:
    stretch = chosen(every(1.0, until_s=1_000.0), from_s=100.0, speed=5.0, rate=0.5)
    assert stretch == Stretch(from_s=100.0, speed=5.0, rate=0.5, num_arrivals=100)


def test_a_dense_file_is_played_at_its_own_speed_and_thinned() -> None:
    stretch = chosen(every(0.01, until_s=100.0))
    assert stretch.speed == 1.0
    assert stretch.rate == pytest.approx(0.1, rel=0.01)


def test_a_sparse_file_is_played_faster_rather_than_each_arrival_sent_ever_more_often() -> None:
    stretch = chosen(every(10.0, until_s=10_000.0))
    assert stretch.rate <= MAX_CHOSEN_RATE
    assert stretch.rate * stretch.num_arrivals == pytest.approx(10.0 * SPAN_S, rel=0.1)
    assert stretch.speed == pytest.approx(12.0, rel=0.1)


def test_a_rate_that_is_given_decides_the_speed() -> None:
    stretch = chosen(every(1.0, until_s=1_000.0), rate=1.0)
    assert stretch.speed == pytest.approx(10.0, rel=0.05)


def test_the_start_is_where_the_traffic_is_and_not_where_it_comes_at_once() -> None:
    lull, busy = every(5.0, until_s=200.0), every(0.2, from_s=500.0, until_s=530.0)
    burst = 800.0 + every(0.001, until_s=0.3)
    stretch = chosen(np.concatenate([lull, busy, burst]), rate_per_s=10.0)
    assert 499.0 <= stretch.from_s <= 511.0


def test_a_choice_does_not_begin_in_silence() -> None:
    times_s = np.concatenate([[0.0], every(0.2, from_s=511.0, until_s=521.0), [900.0]])
    assert 510.0 <= chosen(times_s, rate_per_s=10.0).from_s <= 512.0


def test_a_choice_keeps_bursts_within_a_bound() -> None:
    burst = np.sort(np.random.default_rng(3).random(400) * 2.0)
    times_s = np.concatenate([every(0.5, until_s=10.0), 10.0 + burst, every(0.5, from_s=12.0, until_s=20.0)])
    stretch = chosen(times_s, rate_per_s=10.0, from_s=0.0, speed=1.0)
    per_second = np.bincount(played(times_s, stretch).astype(int))
    # Copies are drawn, so that a second may have a few more than are expected of it.
    assert per_second.max() <= 1.5 * MAX_CHOSEN_BURST * 10.0


@pytest.mark.parametrize("times_s", [np.zeros(1), np.zeros(50), every(0.1, until_s=1.0), np.array([0.0, 2.5e11])])
def test_a_tiny_or_torn_file_is_played_all_the_same(times_s: NDArray[np.float64]) -> None:
    stretch = chosen(times_s)
    assert len(played(times_s, stretch)) >= 1


def test_a_silent_stretch_is_refused_and_says_where_the_next_arrival_is() -> None:
    times_s = np.concatenate([every(1.0, until_s=10.0), [400.0]])
    with pytest.raises(NothingThere, match=r"no arrival in the 40\.0 s from 100 s on; the next comes at 400\.0 s"):
        chosen(times_s, from_s=100.0, speed=2.0)
    with pytest.raises(NothingThere, match="none comes after it"):
        chosen(times_s, from_s=401.0, speed=2.0)
    with pytest.raises(NothingThere, match="none is left"):
        played(times_s, Stretch(from_s=0.0, speed=1.0, rate=1e-6, num_arrivals=10))


@pytest.mark.parametrize(("rate", "fewest", "most"), [(1.0, 1_000, 1_000), (3.0, 3_000, 3_000), (0.25, 180, 320)])
def test_each_arrival_is_sent_as_often_as_the_rate_says(rate: float, fewest: int, most: int) -> None:
    times_s = every(0.01, until_s=10.0)
    at_s = played(times_s, Stretch(from_s=0.0, speed=0.5, rate=rate, num_arrivals=1_000))
    assert fewest <= len(at_s) <= most
    assert np.all(np.diff(at_s) >= 0.0)
    assert at_s[0] >= 0.0
    assert at_s[-1] < SPAN_S


def test_a_fraction_of_the_rate_is_drawn() -> None:
    times_s = every(0.01, until_s=10.0)
    num = len(played(times_s, Stretch(from_s=0.0, speed=0.5, rate=2.5, num_arrivals=1_000)))
    assert 2_400 < num < 2_600


def test_speed_scales_time_and_copies_do_not_fill_silence() -> None:
    times_s = np.array([100.0, 104.0, 130.0])
    at_s = played(times_s, Stretch(from_s=100.0, speed=2.0, rate=50.0, num_arrivals=3))
    assert set(np.unique(np.floor(at_s))) == {0.0, 2.0, 15.0}
    assert [time_s in at_s for time_s in (0.0, 2.0, 15.0)] == [True] * 3


def test_the_same_seed_gives_the_same_requests() -> None:
    times_s, stretch = every(0.1, until_s=10.0), Stretch(from_s=0.0, speed=0.5, rate=1.5, num_arrivals=100)
    assert played(times_s, stretch).tolist() == played(times_s, stretch).tolist()
    assert played(times_s, stretch).tolist() != played(times_s, stretch, seed=2).tolist()


def test_more_requests_than_a_run_can_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="requests are more than"):
        played(np.zeros(20_000), Stretch(from_s=0.0, speed=1.0, rate=1_000.0, num_arrivals=20_000))


@pytest.mark.parametrize("factor", [{"speed": float("nan")}, {"rate": 0.0}, {"from_s": -1.0}, {"speed": float("inf")}])
def test_factors_out_of_range_are_refused(factor: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"arrivals {next(iter(factor))} must be from"):
        WantedArrivals(path="t", **factor)
