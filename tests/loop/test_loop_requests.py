"""The whole serving path in closed loop on a fake clock, request by request: what must hold whatever is taken away."""

import random
from dataclasses import replace

import pytest

from ops.simulator.scenario import parse_scenario
from ops.simulator.scenario_model import CapacityChange, Scenario
from ops.twin.metrics import encode_run
from ops.twin.requests.engine import S
from ops.twin.requests.simulation import START_MS, Kill, Setup, Simulation
from ranking.consumer.executor import OptionalCall
from ranking.consumer.planner import PlanSettings

BASE = 32
START_NS = START_MS * 1_000_000
# 256 candidates at 50,000 a second: what may pass between a closing and the end of the call that was under way.
ONE_CALL_MS = 5.2
WARM_UP_S = 4.0

TEXT = """
name = "loop"
description = "One cell, two idle hosts"
seed = 5
warm_up_s = 4.0
duration_s = 10.0

[[cells]]
name = "us-east"
base_candidates = 32
max_candidates = 512
latency_limit_ms = 250.0
rise_share = 0.5
units_per_unit_s = 50_000.0

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
rate_per_s = 40.0

[requests]
num_candidates = 512
num_results = 8
deadline_ms = 500

[processes]
routers = 2
dedicated_rankers = 2
opportunistic_rankers = 2

[time]
window_ms = 2_000
lateness_ms = 400
heartbeat_ms = 500
host_ttl_ms = 3_000
clock_silence_ms = 300
interval_ms = 500
"""


LEVERS = """
units_per_upgrade = 128.0
max_coverage = 1.0

[[cells.levers]]
lever = "rma"
floor_share = 0.4

[[cells.levers.fits]]
accelerator = "cpu"
units_per_unit_s = 50_000.0

[[cells.levers]]
lever = "sbm"
startup_s = 1.0
floor_share = 0.4

[[cells.levers.fits]]
accelerator = "cpu"
units_per_unit_s = 50_000.0
"""


def scenario(*changes: CapacityChange) -> Scenario:
    return replace(parse_scenario(TEXT, file="loop"), capacity_changes=changes)


def taken_back(at_s: float, *, duration_s: float | None = None) -> CapacityChange:
    return CapacityChange(at_s=at_s, hosts="*", action="reclaim", reason="owner", duration_s=duration_s, units=None)


def played(what: Scenario, **setup) -> Simulation:
    """A run to its end, with everything answered, nothing late, and every account closed."""
    simulation = Simulation(what, Setup(seed=what.seed, **setup))
    simulation.run()
    tally = simulation.tally
    assert tally.num_results == simulation.num_requests > 0
    assert tally.num_late == tally.num_degraded == 0
    accounts = [
        account
        for seen in tally.latency_windows("us-east").values()
        for account in seen.accounts
        if account.lever == "rma"
    ]
    for account in accounts:
        shed = sum(shed.units for shed in account.sheds)
        assert account.offered == account.admitted + shed + account.late + account.lost
    assert sum(account.offered for account in accounts) == tally.assigned > 0
    return simulation


@pytest.fixture(scope="module")
def undisturbed_calls():
    """Every optional call where nothing is taken back: what a run does up to the moment at which something is."""
    calls: list[OptionalCall] = []
    played(scenario(), on_call=lambda _, call: calls.append(call))
    return [call for call in calls if call.num_candidates and call.looked_ns > START_NS + (WARM_UP_S + 4.0) * S]


@pytest.mark.parametrize("seed", range(10))
def test_capacity_taken_back_at_any_moment_ends_optional_work_at_once_and_the_target_within_a_tick(
    seed, undisturbed_calls
):
    # In the middle of a call, as most moments of a busy pool are.
    dice = random.Random(seed)
    running = dice.choice(undisturbed_calls[: len(undisturbed_calls) // 2])
    closed_ns = round(running.looked_ns + dice.uniform(0.05, 0.95) * (running.end_ns - running.looked_ns))
    moment_s = (closed_ns - START_NS) / S - WARM_UP_S
    calls: list[OptionalCall] = []
    simulation = played(scenario(taken_back(moment_s)), on_call=lambda _, call: calls.append(call))
    before = [call for call in calls if call.looked_ns < closed_ns]
    # 1. no call begins behind the closing, and the last that had begun is over within one call's time;
    assert before
    assert len(before) == len(calls)
    assert 0 < max(call.end_ns for call in calls) - closed_ns < ONE_CALL_MS * 1e6
    assert all(call.num_candidates <= PlanSettings().call_size for call in calls)
    # 2. what was cut off is answered as shed;
    tick = closed_ns // 1_000_000 // 2_000
    sheds = {
        shed.reason
        for index, seen in simulation.tally.latency_windows("us-east").items()
        if index >= tick
        for account in seen.accounts
        for shed in account.sheds
    }
    assert sheds <= {"gate_closed", "pressure", "route_silent", "expired", "deadline", "value", "backlog"}
    assert "gate_closed" in sheds
    # 3. the first target made of a window that saw it is at base, and nothing rises after it.
    targets = simulation.tally.targets("us-east")
    assert targets[tick - 1].candidate_target > BASE
    assert {target.candidate_target for index, target in targets.items() if index >= tick} == {BASE}


@pytest.mark.parametrize("victim", ["opportunistic-1", "opportunistic-2"])
@pytest.mark.parametrize("seed", range(3))
def test_an_opportunistic_replica_that_vanishes_in_a_batch_delays_no_base_answer(seed, victim):
    kill = Kill(at_s=random.Random(seed).uniform(4.0, 8.0), replica=victim, restart_after_s=2.5)
    simulation = played(scenario(), kills=(kill,))
    items = simulation.tally.items
    assert items["admitted"] > 0


def test_all_opportunistic_replicas_vanish_for_good_and_every_request_has_its_base_answer():
    kills = tuple(Kill(at_s=5.0, replica=f"opportunistic-{number}") for number in (1, 2))
    simulation = played(scenario(), kills=kills)
    latest = max(simulation.tally.latency_windows("us-east").items())[1]
    assert all(route.num_answered == 0 for route in latest.routes if (route.part, route.route) == ("router", "wide"))


def test_a_dedicated_replica_that_vanishes_has_its_work_done_by_another():
    simulation = played(scenario(), kills=(Kill(at_s=5.0, replica="dedicated-1", restart_after_s=1.0),))
    assert simulation.routes["baseline"].num_sent > simulation.num_requests


def base_work_of(monkeypatch, what: Scenario, **setup) -> list[tuple[int, int, str, int]]:
    """Every piece of base work: when it was sent, and where."""
    simulation = Simulation(what, Setup(seed=what.seed, **setup))
    sent: list[tuple[int, int, str, int]] = []
    route = simulation.routes["baseline"]
    send = route.send

    def note(work, partition):
        sent.append((simulation.engine.now_ns, partition, work.request_id, work.attempt))
        send(work, partition)

    monkeypatch.setattr(route, "send", note)
    simulation.run()
    return sent


def test_dedicated_load_is_the_same_with_and_without_opportunistic_capacity(monkeypatch):
    with_capacity = base_work_of(monkeypatch, scenario())
    without = replace(scenario(), hosts=tuple(replace(host, offered_at_start=False) for host in scenario().hosts))
    assert base_work_of(monkeypatch, without) == with_capacity
    kill = Kill(at_s=3.0, replica="opportunistic-1")
    assert base_work_of(monkeypatch, scenario(taken_back(5.0)), kills=(kill,)) == with_capacity


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    what = scenario(taken_back(5.0, duration_s=2.0))
    first, again, other = (
        encode_run(Simulation(what, Setup(seed=seed)).run()) for seed in (what.seed, what.seed, what.seed + 1)
    )
    assert first == again
    assert first != other


def test_a_pool_that_is_split_serves_both_levers_and_the_upgrades_are_accounted_for():
    text = TEXT.replace("units_per_unit_s = 50_000.0\n", f"units_per_unit_s = 50_000.0\n{LEVERS}", 1)
    simulation = played(parse_scenario(text, file="levers"))
    windows = simulation.tally.latency_windows("us-east").values()
    accounts = [account for window in windows for account in window.accounts if account.lever == "sbm"]
    for account in accounts:
        shed = sum(shed.units for shed in account.sheds)
        assert account.offered == account.admitted + shed + account.late + account.lost
    num_routed = sum(segment.num_routed for window in windows for segment in window.segments)
    assert num_routed == simulation.routes["powerful"].num_sent > 0
    held_back = sum(
        shed.units for account in accounts for shed in account.sheds if shed.reason in ("pressure", "route_silent")
    )
    assert num_routed <= sum(account.offered for account in accounts) <= num_routed + held_back
    assert {node.terms.route for node in simulation.roles.nodes} == {"wide", "powerful"}
    assert (
        sum(
            earned.value_micro
            for tick in simulation.tally.runs(until_ms=1 << 60)[0].ticks
            for earned in tick.earned
            if earned.lever == "sbm"
        )
        > 0
    )
