"""When requests of a simulation come, and what their callers spent before: what a scenario's ``twin`` adds to both.

Shape legend: G points of a grid of time.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.simulator.arrivals import arrival_times, ramped
from ops.simulator.scenario_model import Scenario

# What shapes the traffic is looked at so often.
_STEP_S: Final = 0.05
_Z99: Final = 2.3263478740408408


def arrivals_s(scenario: Scenario, rng: np.random.Generator) -> Iterator[float]:
    """Rising times of arrival, s after traffic starts.

    Without a day, surges or a recorded shape they are the demo's. Otherwise by rescaling time: an arrival at u of the
    scenario's own process comes at t with the integral of the shape from 0 to t equal to u.
    """
    twin = scenario.twin
    if not (twin.day.swing or twin.shape or any(surge.rate_factor != 1.0 for surge in twin.surges)):
        times_s = arrival_times(scenario.arrivals, rng, duration_s=scenario.arrivals_s)
        yield from ramped(times_s, ramp_s=scenario.ramp_s)
        return
    grid_G = np.arange(0.0, scenario.traffic_s + _STEP_S, _STEP_S)
    passed_G = np.append(0.0, np.cumsum(_shape_G(scenario, grid_G[:-1] + _STEP_S / 2.0)) * _STEP_S)
    for at_s in arrival_times(scenario.arrivals, rng, duration_s=float(passed_G[-1])):
        yield float(np.interp(at_s, passed_G, grid_G))


def upstream_factor(scenario: Scenario, at_s: float) -> float:
    """Surges of the time spent upstream at a moment after traffic starts."""
    since_s = at_s - scenario.warm_up_s
    factors = [
        surge.upstream_factor for surge in scenario.twin.surges if surge.at_s <= since_s < surge.at_s + surge.duration_s
    ]
    return math.prod(factors)


def upstream_draws_us(scenario: Scenario, rng: np.random.Generator, num: int) -> list[float]:
    """Times spent upstream, log-normal with the scenario's median and p99; 0 where callers do not say."""
    upstream = scenario.twin.upstream
    if upstream.median_ms <= 0.0:
        return [0.0] * num
    sigma = math.log(upstream.p99_ms / upstream.median_ms) / _Z99
    draws: list[float] = rng.lognormal(math.log(upstream.median_ms * 1_000.0), sigma, num).tolist()
    return draws


def _shape_G(scenario: Scenario, times_G: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factor of the request rate at times after traffic starts: the ramp, the day, surges, a recorded shape."""
    twin = scenario.twin
    since_G = times_G - scenario.warm_up_s
    shape_G = np.minimum(1.0, times_G / scenario.ramp_s) if scenario.ramp_s > 0.0 else np.ones_like(times_G)
    shape_G *= 1.0 + twin.day.swing * np.cos(2.0 * np.pi * (since_G - twin.day.peak_s) / twin.day.period_s)
    for surge in twin.surges:
        is_on_G = (since_G >= surge.at_s) & (since_G < surge.at_s + surge.duration_s)
        shape_G *= np.where(is_on_G, surge.rate_factor, 1.0)
    if twin.shape:
        steps = np.frombuffer(twin.shape, "<f8")
        shape_G *= steps[(times_G / twin.shape_step_s).astype(np.int64) % len(steps)]
    return shape_G
