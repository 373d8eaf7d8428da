"""Both levels of the twin say the same of one scenario: fluids between windows, and every request played.

The tolerances are what chance leaves of about a thousand requests: arrivals come one by one here and by their number
there, and what a request earns varies several times as much as what its extras add.
"""

from statistics import mean, median

import pytest

from ops.simulator.scenario import parse_scenario
from ops.twin.requests.simulation import Setup, Simulation
from ops.twin.run import simulate

TEXT = """
name = "agreement"
description = "One cell, two idle hosts: everything is taken back for a while in the middle"
seed = 21
warm_up_s = 8.0
duration_s = 64.0

[[cells]]
name = "us-east"
base_candidates = 64
max_candidates = 512
latency_limit_ms = 1500.0
rise_share = 0.25
units_per_unit_s = 100_000.0

[[hosts]]
name = "idle"
copies = 2
cell = "us-east"
accelerator = "cpu"
units = 1.0
cpu_cores = 1.0
memory_bytes = 1_073_741_824
idle_cause = "off_peak"

[arrivals]
process = "poisson"
rate_per_s = 15.0

[requests]
num_candidates = 512
num_results = 8
deadline_ms = 3000

[[capacity_changes]]
at_s = 31.0
hosts = "*"
action = "reclaim"
reason = "owner_peak"
duration_s = 12.0

[processes]
routers = 1
dedicated_rankers = 1
opportunistic_rankers = 2

[time]
window_ms = 2_000
"""


@pytest.fixture(scope="module")
def runs():
    scenario = parse_scenario(TEXT, file="agreement")
    return Simulation(scenario, Setup(seed=scenario.seed)).run(), simulate(scenario)


def measured(run):
    return [tick for tick in run.cells[0].ticks if tick.at_s > 0.0]


def test_the_same_targets_at_the_same_time(runs):
    by_request, by_tick = ([tick.candidate_target for tick in measured(run)] for run in runs)
    assert len(by_request) == len(by_tick)
    assert mean(by_request) == pytest.approx(mean(by_tick), rel=0.05)
    # One window more or less: a reclaim that comes to the controller just before or behind a window's end.
    differing = sum(one != other for one, other in zip(by_request, by_tick, strict=True))
    assert differing <= 2


@pytest.mark.parametrize(
    ("figure", "tolerance"),
    [
        (lambda totals: totals.num_requests, 0.08),
        (lambda totals: totals.offered["rma"], 0.1),
        (lambda totals: totals.admitted["rma"], 0.12),
        (lambda totals: totals.base_value / totals.num_requests, 0.08),
        (lambda totals: totals.earned["rma"] / totals.admitted["rma"], 0.3),
        (lambda totals: totals.usable_unit_h, 0.05),
    ],
    ids=["requests", "offered", "admitted", "base value", "earned", "usable units"],
)
def test_the_same_totals(runs, figure, tolerance):
    by_request, by_tick = (figure(run.totals) for run in runs)
    assert by_request == pytest.approx(by_tick, rel=tolerance)


def test_about_the_same_tail_of_latency(runs):
    by_request, by_tick = (
        median(tick.latency_p99_ms for tick in measured(run) if tick.latency_p99_ms is not None) for run in runs
    )
    assert by_request == pytest.approx(by_tick, rel=0.3)
    assert all(run.totals.num_base_late == 0 for run in runs)
