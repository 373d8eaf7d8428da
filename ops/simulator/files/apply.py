"""Scenarios whose traffic comes from files: read once, cut to the stretch that is played, and put into the scenario.

What comes out holds everything: whoever plays it needs neither the files nor the choice again.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace as replace_limits

from ops.simulator.files.arrivals_file import read_arrivals
from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.fleet_file import read_fleet
from ops.simulator.files.fleet_hosts import SLOT_S, Resource, fleet_hosts
from ops.simulator.files.idle import choose_capacity, in_use
from ops.simulator.files.pairs_file import read_pairs
from ops.simulator.files.report import FileReport, dirty_rows
from ops.simulator.files.stretch import choose_stretch, play
from ops.simulator.files.wanted import NO_FILES, WantedArrivals, WantedCapacity, WantedFiles
from ops.simulator.scenario import load_scenario
from ops.simulator.scenario_model import Scenario
from ops.simulator.world import WorldConfig
from schemas.records import CellLimits

# Separates the draws of copies from those of everything else that starts from the same seed.
_COPY_STREAM: Final = 4
_MOST_CANDIDATES: Final = min(4_096, WorldConfig().num_ads)


def load_traffic(name_or_path: str, *, duration_s: float | None = None, files: WantedFiles | None = None) -> Scenario:
    """A scenario by name or path, over ``duration_s`` if given, with its files (and ``files`` before them) read.

    Raises ScenarioError naming scenario or file and what is wrong with it, ValueError for a time out of range.
    """
    scenario = load_scenario(name_or_path)
    if duration_s is not None:
        scenario = scenario.stretched(duration_s)
    wanted = scenario.wanted_files if files is None else files.over(scenario.wanted_files)
    return with_files(scenario, wanted)


def with_files(scenario: Scenario, wanted: WantedFiles) -> Scenario:
    """The scenario with its traffic from files. Raises TrafficFileError."""
    scenario = replace(scenario, wanted_files=NO_FILES)
    if wanted.arrivals is not None:
        scenario = _with_arrivals(scenario, wanted.arrivals)
    if wanted.capacity is not None:
        scenario = _with_capacity(scenario, wanted.capacity)
    if wanted.pairs is not None:
        scenario = _with_pairs(scenario, wanted.pairs)
    return scenario


def _with_arrivals(scenario: Scenario, wanted: WantedArrivals) -> Scenario:
    trace = read_arrivals(Path(wanted.path))
    span_s = scenario.arrivals_s
    rng = np.random.default_rng([scenario.seed, _COPY_STREAM])
    try:
        stretch = choose_stretch(trace.times_s, wanted, span_s=span_s, rate_per_s=scenario.arrivals.rate_per_s)
        times_s_N = play(trace.times_s, stretch, span_s=span_s, rng=rng)
    except ValueError as error:
        raise TrafficFileError(wanted.path, "TIMESTAMP", str(error)) from None
    per_second = np.bincount(times_s_N.astype(np.int64), minlength=math.ceil(span_s))
    story = (
        f"{stretch.num_arrivals} arrivals in {stretch.speed * span_s:.4g} s of {trace.length_s:.4g} s, "
        f"from {stretch.from_s:.1f} s on at speed {stretch.speed:.4g}, each sent {stretch.rate:.4g} times: "
        f"{len(times_s_N) / span_s:.1f}/s, at most {per_second.max()} in a second, "
        f"{int((per_second == 0).sum())} of {len(per_second)} s without one"
    )
    report = FileReport(
        kind="arrivals",
        name=Path(wanted.path).name,
        num_rows=trace.num_rows,
        num_used=len(trace.times_s),
        dirty=dirty_rows(trace.dirt),
        factors={"from_s": float(stretch.from_s), "speed": float(stretch.speed), "rate": float(stretch.rate)},
        chosen=_not_given({"from_s": wanted.from_s, "speed": wanted.speed, "rate": wanted.rate}),
        story=story,
    )
    arrivals = replace(
        scenario.arrivals,
        process="file",
        rate_per_s=round(len(times_s_N) / span_s, 3),
        times=times_s_N.astype("<f8").tobytes(),
    )
    return _reported(replace(scenario, arrivals=arrivals), report)


def _with_capacity(scenario: Scenario, wanted: WantedCapacity) -> Scenario:
    fleet = read_fleet(Path(wanted.path))
    resources = [
        Resource(kind, noun, in_use(fleet, amounts_I))
        for kind, noun, amounts_I in (("gpu", "GPUs", fleet.gpus_I), ("cpu", "CPU cores", fleet.cores_I))
        if amounts_I.any()
    ]
    num_hosts = wanted.hosts or max(scenario.processes.opportunistic_rankers, 1)
    try:
        stretch = choose_capacity(
            [resource.use for resource in resources],
            wanted,
            length_s=fleet.length_s,
            duration_s=scenario.duration_s,
            slot_s=SLOT_S,
        )
    except ValueError as error:
        raise TrafficFileError(wanted.path, "scheduled_time", str(error)) from None
    made = fleet_hosts(
        resources,
        stretch,
        duration_s=scenario.duration_s,
        num_hosts=num_hosts,
        cells=[cell.name for cell in scenario.cells],
    )
    roles = ", ".join(f"{num} {role}" for role, num in sorted(fleet.num_by_role.items()))
    story = (
        f"{roles}; {stretch.speed * scenario.duration_s:.4g} s of {fleet.length_s:.4g} s, "
        f"from {stretch.from_s:.1f} s on at speed {stretch.speed:.4g}: {made.story}"
    )
    report = FileReport(
        kind="capacity",
        name=Path(wanted.path).name,
        num_rows=fleet.num_rows,
        num_used=fleet.num_used,
        dirty=dirty_rows(fleet.dirt),
        factors={"from_s": float(stretch.from_s), "speed": float(stretch.speed), "hosts": num_hosts},
        chosen=_not_given({"from_s": wanted.from_s, "speed": wanted.speed, "hosts": wanted.hosts}),
        story=story,
    )
    changed = replace(
        scenario,
        hosts=made.hosts,
        capacity_changes=made.changes,
        random_reclaims=None,
        # Units that nobody runs on would be paid for in the controller's sums.
        processes=replace(scenario.processes, opportunistic_rankers=num_hosts),
    )
    return _reported(changed, report)


def _with_pairs(scenario: Scenario, path: str) -> Scenario:
    pairs = read_pairs(Path(path), limit=_MOST_CANDIDATES)
    least, most = pairs.quantiles[0], pairs.quantiles[-1]
    # Linear between quantiles at equal steps, so the mean is that of the trapezoids.
    middle = [(low + high) / 2.0 for low, high in zip(pairs.quantiles, pairs.quantiles[1:], strict=False)]
    mean = sum(middle) / len(middle) if middle else least
    report = FileReport(
        kind="pairs",
        name=Path(path).name,
        num_rows=pairs.num_values,
        num_used=len(pairs.quantiles),
        dirty=dirty_rows(pairs.dirt),
        factors={},
        chosen=(),
        story=f"{len(pairs.quantiles)} quantiles, {least:g} to {most:g} candidates per request, mean {mean:.0f}",
    )
    largest = math.ceil(most)
    cells = tuple(replace(cell, limits=_widened(cell.limits, largest)) for cell in scenario.cells)
    requests = replace(scenario.requests, num_candidates=largest, pairs=pairs.quantiles)
    return _reported(replace(scenario, cells=cells, requests=requests), report)


def _widened(limits: CellLimits, largest: int) -> CellLimits:
    """Limits under which a request's ``largest`` number of candidates may all be ranked, and that rise no faster."""
    if largest <= limits.max_candidates:
        return limits
    step = limits.rise_share * (limits.max_candidates - limits.base_candidates)
    rise_share = step / (largest - limits.base_candidates)
    return replace_limits(limits, max_candidates=largest, rise_share=rise_share if step > 0.0 else limits.rise_share)


def _not_given(factors: dict[str, float | None]) -> tuple[str, ...]:
    return tuple(name for name, value in factors.items() if value is None)


def _reported(scenario: Scenario, report: FileReport) -> Scenario:
    return replace(scenario, file_reports=(*scenario.file_reports, report))
