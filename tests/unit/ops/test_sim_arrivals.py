"""Arrivals: rate, spread and order of each process, and the same times for the same seed."""

from dataclasses import replace

import numpy as np
import pytest

from ops.simulator.arrivals import arrival_times, burst_rates, ramped
from ops.simulator.scenario_model import ArrivalProcess, Arrivals

ARRIVALS = Arrivals(process="poisson", rate_per_s=50.0, burst_factor=5.0, mean_burst_s=2.0, mean_quiet_s=6.0)


def times(process: ArrivalProcess, *, seed: int = 1, duration_s: float = 2_000.0) -> list[float]:
    arrivals = replace(ARRIVALS, process=process)
    return list(arrival_times(arrivals, np.random.default_rng(seed), duration_s=duration_s))


def dispersion(at_s: list[float], *, bin_s: float) -> float:
    """Variance over mean of counts per bin: 1 for Poisson, 0 for equal gaps, above 1 for bursts."""
    counts, _ = np.histogram(at_s, bins=np.arange(0.0, 2_000.0 + bin_s, bin_s))
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("process", ["constant", "poisson", "bursty"])
def test_times_rise_within_the_duration_and_belong_to_the_seed(process: ArrivalProcess) -> None:
    at_s = times(process, duration_s=50.0)
    assert at_s == sorted(at_s)
    assert len(set(at_s)) == len(at_s)
    assert at_s[0] >= 0.0
    assert at_s[-1] < 50.0
    assert at_s == times(process, duration_s=50.0)
    if process != "constant":
        assert at_s != times(process, seed=2, duration_s=50.0)


@pytest.mark.parametrize("process", ["constant", "poisson", "bursty"])
def test_a_longer_run_begins_like_a_shorter_one(process: ArrivalProcess) -> None:
    short = times(process, duration_s=20.0)
    assert times(process, duration_s=40.0)[: len(short)] == short


@pytest.mark.parametrize(("process", "tolerance"), [("constant", 0.0), ("poisson", 0.02), ("bursty", 0.10)])
def test_the_mean_rate_is_as_asked_for(process: ArrivalProcess, tolerance: float) -> None:
    assert len(times(process)) / 2_000.0 == pytest.approx(50.0, rel=tolerance + 1e-9)


def test_spread_of_counts_tells_the_processes_apart() -> None:
    assert dispersion(times("constant"), bin_s=0.5) < 0.01
    assert dispersion(times("poisson"), bin_s=0.5) == pytest.approx(1.0, abs=0.1)
    assert dispersion(times("bursty"), bin_s=0.5) > 5.0


def test_burst_rates_average_to_the_rate() -> None:
    quiet, burst = burst_rates(ARRIVALS)
    assert burst == pytest.approx(5.0 * quiet)
    assert (6.0 * quiet + 2.0 * burst) / 8.0 == pytest.approx(50.0)


def test_the_mean_rate_holds_where_phases_are_shorter_than_gaps() -> None:
    hasty = replace(ARRIVALS, process="bursty", rate_per_s=5.0, mean_burst_s=0.05, mean_quiet_s=0.05)
    num_arrivals = len(list(arrival_times(hasty, np.random.default_rng(1), duration_s=2_000.0)))
    assert num_arrivals / 2_000.0 == pytest.approx(5.0, rel=0.06)


def test_a_ramp_raises_the_rate_linearly_and_then_leaves_it() -> None:
    constant = [index / 100.0 for index in range(2_000)]
    times = list(ramped(constant, ramp_s=10.0))
    assert times == sorted(times)
    # The integral of s / 10 is s^2 / 20: 500 arrivals in the ramp, a quarter of them in its first half.
    assert sum(at_s < 5.0 for at_s in times) == pytest.approx(125, abs=1)
    assert sum(at_s < 10.0 for at_s in times) == pytest.approx(500, abs=1)
    assert times[500:] == [at_s + 5.0 for at_s in constant[500:]]


def test_no_ramp_changes_nothing() -> None:
    assert list(ramped([0.0, 0.5, 2.0], ramp_s=0.0)) == [0.0, 0.5, 2.0]
