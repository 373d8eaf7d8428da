"""One cell of a scenario as the twin plays it: everything that is fixed before the first window. Pure.

Times count from the start of traffic; windows are numbered from 0. Shape legend: K windows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ops.simulator.arrivals import burst_rates
from ops.simulator.scenario_model import Cell, Host, Scenario
from ops.simulator.timeline import HostEvent, host_timeline
from schemas.records import CellLimits

# Separates the twin's draws from those of reclaims, arrivals and requests, which start from the same seed.
_BURST_STREAM = 12
_NOISE_STREAM = 13
_ARRIVAL_STREAM = 15
# Rates that change within a window count by their mean at so many moments.
_MOMENTS = 4


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """By window: expected requests per second, those that come, and the factors of the time spent upstream and of the
    pools' speed."""

    rates_K: NDArray[np.float64]
    nums_K: NDArray[np.int64]
    upstream_K: NDArray[np.float64]
    speed_K: NDArray[np.float64]

    @property
    def num_windows(self) -> int:
        return len(self.rates_K)


@dataclass(frozen=True, kw_only=True)
class CellPlay:
    """One cell: ``number`` is its place in the fleet, from which its draws come."""

    number: int
    name: str
    scenario: Scenario
    limits: CellLimits
    hosts: tuple[Host, ...]
    events: tuple[HostEvent, ...]
    schedule: Schedule

    @property
    def window_s(self) -> float:
        return self.scenario.time.window_ms / 1_000.0

    def rng(self, stream: int) -> np.random.Generator:
        """Generator of one kind of the cell's noise; the same at every call."""
        return np.random.default_rng([self.scenario.seed, _NOISE_STREAM, self.number, stream])


def num_cells(scenario: Scenario) -> int:
    """Cells of the fleet, copies included."""
    return len(scenario.cells) * scenario.twin.copies


def cell_play(scenario: Scenario, number: int) -> CellPlay:
    """The cell at a place of the fleet: copy 0 of every cell first, as the scenario has it; others by chance of their
    own, their day shifted."""
    copy, place = divmod(number, len(scenario.cells))
    cell = scenario.cells[place]
    seed = scenario.seed if copy == 0 else int(np.random.SeedSequence([scenario.seed, copy]).generate_state(1)[0])
    hosts = tuple(host for host in scenario.hosts if host.cell == cell.name)
    names = {host.name for host in hosts}
    shift_s = scenario.twin.phase_s * copy / scenario.twin.copies
    return CellPlay(
        number=number,
        name=cell.name if scenario.twin.copies == 1 else f"{cell.name}.{copy}",
        scenario=scenario,
        limits=cell.limits,
        hosts=hosts,
        events=tuple(
            replace(event, at_s=event.at_s + scenario.warm_up_s)
            for event in host_timeline(replace(scenario, seed=seed))
            if event.host in names
        ),
        schedule=_schedule(scenario, cell, number=number, seed=seed, shift_s=shift_s),
    )


def _schedule(scenario: Scenario, cell: Cell, *, number: int, seed: int, shift_s: float) -> Schedule:
    window_s = scenario.time.window_ms / 1_000.0
    # Whole ones, as what is left over would be judged by a window that it does not fill.
    num_windows = max(1, math.floor(scenario.traffic_s / window_s + 1e-9))
    share = cell.traffic_share / sum(each.traffic_share for each in scenario.cells)
    moments_KM = window_s * (np.arange(num_windows)[:, None] + (np.arange(_MOMENTS) + 0.5) / _MOMENTS)
    measured_KM = moments_KM - scenario.warm_up_s
    day = scenario.twin.day
    rates_KM = 1.0 + day.swing * np.cos(2.0 * np.pi * (measured_KM - day.peak_s - shift_s) / day.period_s)
    upstream_KM, speed_KM = np.ones_like(rates_KM), np.ones_like(rates_KM)
    for surge in scenario.twin.surges:
        is_on_KM = (measured_KM >= surge.at_s) & (measured_KM < surge.at_s + surge.duration_s)
        rates_KM *= np.where(is_on_KM, surge.rate_factor, 1.0)
        upstream_KM *= np.where(is_on_KM, surge.upstream_factor, 1.0)
        speed_KM *= np.where(is_on_KM, surge.speed_factor, 1.0)
    arrivals_K = _arrivals(scenario, num_windows, np.random.default_rng([seed, _BURST_STREAM]))
    if scenario.arrivals.process != "file":
        # Times of a file are stretched over the ramp by whoever reads them.
        rates_KM *= np.minimum(1.0, moments_KM / scenario.ramp_s) if scenario.ramp_s > 0.0 else 1.0
    rates_K = share * arrivals_K * rates_KM.mean(axis=1)
    # Drawn here, so that every controller is asked the same.
    rng = np.random.default_rng([scenario.seed, _ARRIVAL_STREAM, number])
    return Schedule(
        rates_K=rates_K,
        nums_K=rng.poisson(rates_K * window_s) if scenario.twin.noise else np.rint(rates_K * window_s).astype(np.int64),
        upstream_K=upstream_KM.mean(axis=1),
        speed_K=speed_KM.mean(axis=1),
    )


def _arrivals(scenario: Scenario, num_windows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Mean arrivals per second of each window, all cells together, before anything shapes them: float64 [K]."""
    arrivals, window_s = scenario.arrivals, scenario.time.window_ms / 1_000.0
    if arrivals.process == "file":
        times_s = np.frombuffer(arrivals.times, "<f8")
        counts_K = np.bincount((times_s / window_s).astype(np.int64), minlength=num_windows)[:num_windows]
        return counts_K / window_s
    if scenario.twin.shape:
        return arrivals.rate_per_s * _shape(scenario, num_windows)
    if arrivals.process != "bursty":
        return np.full(num_windows, arrivals.rate_per_s)
    edges_s, num_by_edge = _burst_edges(scenario, rng, until_s=num_windows * window_s)
    by_window = np.interp(window_s * np.arange(num_windows + 1), edges_s, num_by_edge)
    rates_K: NDArray[np.float64] = np.diff(by_window) / window_s
    return rates_K


def _shape(scenario: Scenario, num_windows: int) -> NDArray[np.float64]:
    """Mean of the recorded rate over each window, relative to the recording's mean: float64 [K]."""
    twin, window_s = scenario.twin, scenario.time.window_ms / 1_000.0
    steps = np.frombuffer(twin.shape, "<f8")
    sums = np.append(0.0, np.cumsum(steps)) * twin.shape_step_s
    length_s = len(steps) * twin.shape_step_s
    rounds, rest_s = np.divmod(window_s * np.arange(num_windows + 1), length_s)
    passed = rounds * sums[-1] + np.interp(rest_s, twin.shape_step_s * np.arange(len(sums)), sums)
    means_K: NDArray[np.float64] = np.diff(passed) / window_s
    return means_K


def _burst_edges(
    scenario: Scenario, rng: np.random.Generator, *, until_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of quiet times and bursts in turn, and the arrivals expected up to each."""
    phases = list(_phases(scenario, rng, until_s=until_s))
    lengths_s = np.array([length_s for length_s, _ in phases])
    rates = np.array([rate for _, rate in phases])
    return np.append(0.0, np.cumsum(lengths_s)), np.append(0.0, np.cumsum(lengths_s * rates))


def _phases(scenario: Scenario, rng: np.random.Generator, *, until_s: float) -> Iterator[tuple[float, float]]:
    arrivals = scenario.arrivals
    quiet, burst = burst_rates(arrivals)
    passed_s = 0.0
    while passed_s <= until_s:
        for rate, mean_s in ((quiet, arrivals.mean_quiet_s), (burst, arrivals.mean_burst_s)):
            length_s = float(rng.exponential(mean_s))
            passed_s += length_s
            yield length_s, rate
