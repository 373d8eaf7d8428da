"""Scenarios: what is built in holds its promises, and each mistake is named by file and key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ops.simulator.requests import RequestStream
from ops.simulator.scenario import ScenarioError, built_in_scenarios, load_scenario, parse_scenario
from ops.simulator.scenario_model import OutcomeSettings
from ops.simulator.timeline import host_timeline
from ops.simulator.twin_settings import Mix, Surge
from ops.simulator.world import World, WorldConfig
from ranking.router.experiment import parse_experiment
from schemas.gate import gate_file_name

GOOD = """
name = "good"
seed = 1
warm_up_s = 2
duration_s = 30

[[cells]]
name = "us-east"
base_candidates = 64
max_candidates = 256
latency_limit_ms = 200

[[hosts]]
name = "host-a"
cell = "us-east"
accelerator = "cpu"
units = 2
cpu_cores = 2
memory_bytes = 1000
idle_cause = "off_peak"

[arrivals]
rate_per_s = 10

[requests]
num_candidates = 256
deadline_ms = 500

[[capacity_changes]]
at_s = 10
hosts = "host-*"
action = "reclaim"
duration_s = 5

[processes]
opportunistic_rankers = 1
"""


def test_a_scenario_is_read_with_its_defaults() -> None:
    scenario = parse_scenario(GOOD, file="good.toml")
    assert scenario.traffic_s == 32.0
    assert scenario.arrivals.process == "poisson"
    assert scenario.time.window_ms == 2_000
    assert scenario.processes.dedicated_rankers == 2
    assert scenario.random_reclaims is None
    assert [host.name for host in scenario.ranker_hosts()] == ["host-a"]


def swap(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


def add(lines: str) -> Callable[[str], str]:
    return lambda text: text + "\n" + lines


@pytest.mark.parametrize(
    ("change", "key", "detail"),
    [
        (swap("seed = 1", ""), "seed", "missing"),
        (swap("seed = 1", "seed = 1\nsed = 2"), "sed", "unknown key; is seed meant?"),
        (swap("seed = 1", "seed = true"), "seed", "whole number"),
        (swap("duration_s = 30", "duration_s = 0.5"), "duration_s", "from 1"),
        (swap("duration_s = 30", "duration_s = nan"), "duration_s", "finite"),
        (swap('name = "good"', "name = 3"), "name", "string"),
        (swap("units = 2", "units = -1"), "hosts[0].units", "from 0"),
        (swap("units = 2", 'units = "two"'), "hosts[0].units", "finite number"),
        (swap("units = 2", "unit = 2"), "hosts[0].units", "missing"),
        (swap('cell = "us-east"', 'cell = "us-west"'), "hosts[0].cell", "one of us-east"),
        (swap('name = "host-a"', 'name = "../host"'), "hosts[0].name", "match"),
        (swap('"off_peak"', '"holiday"'), "hosts[0].idle_cause", "one of off_peak"),
        (swap("memory_bytes = 1000", 'memory_bytes = 1\nunusable = "broken"'), "hosts[0].unusable", "one of"),
        (swap("memory_bytes = 1000", "memory_bytes = 1\noffered_at_start = 1"), "hosts[0].offered_at_start", "true or"),
        (swap('name = "us-east"', 'name = "US"'), "cells[0].name", "match"),
        (swap("max_candidates = 256", "max_candidates = 63"), "cells[0].max_candidates", "from 64"),
        (swap("latency_limit_ms = 200", "latency_limit_ms = 0"), "cells[0].latency_limit_ms", "from 1"),
        (swap("rate_per_s = 10", "rate_per_s = 0"), "arrivals.rate_per_s", "from 0.01"),
        (swap("rate_per_s = 10", "rate_per_s = 9\nburst_factor = 2"), "arrivals.burst_factor", "bursty"),
        (swap("rate_per_s = 10", 'rate_per_s = 9\nprocess = "odd"'), "arrivals.process", "one of constant"),
        (swap("num_candidates = 256", "num_candidates = 63"), "requests.num_candidates", "from 64"),
        (swap("num_candidates = 256", "num_candidates = 4097"), "requests.num_candidates", "to 4"),
        (swap("deadline_ms = 500", "deadline_ms = 0"), "requests.deadline_ms", "from 1"),
        (swap("at_s = 10", "at_s = 31"), "capacity_changes[0].at_s", "to 30"),
        (swap('hosts = "host-*"', 'hosts = "idle-*"'), "capacity_changes[0].hosts", "none of the hosts"),
        (swap('action = "reclaim"', 'action = "take"'), "capacity_changes[0].action", "one of offer"),
        (swap('action = "reclaim"', 'action = "offer"'), "capacity_changes[0].duration_s", "until a reclaim"),
        (swap('action = "reclaim"', 'action = "update"'), "capacity_changes[0].units", "wanted by update"),
        (swap('action = "reclaim"', 'action = "reclaim"\nunits = 1'), "capacity_changes[0].units", "no other"),
        (swap('action = "reclaim"\nduration_s = 5', 'action = "notice"'), "capacity_changes[0].duration_s", "missing"),
        (add("[random_reclaims]\nmean_duration_s = 1"), "random_reclaims.per_host_per_minute", "missing"),
        (
            add('[random_reclaims]\nper_host_per_minute = 1\nmean_duration_s = 1\nhosts = "x"'),
            "random_reclaims.hosts",
            "none of the hosts",
        ),
        (add("[time]\nwindow_ms = 0"), "time.window_ms", "from 1"),
        (add("[time]\nheartbeat_ms = 4000"), "time.host_ttl_ms", "two heartbeats"),
        (add("[time]\nwindow = 10"), "time.window", "unknown key; is window_ms meant?"),
        (add("[outcomes]\ndelay_scale = -1"), "outcomes.delay_scale", "from 0"),
        (swap("opportunistic_rankers = 1", "routers = 0"), "processes.routers", "from 1"),
        (
            swap("memory_bytes = 1000", 'memory_bytes = 1\nunusable = "memory"'),
            "processes.opportunistic_rankers",
            "no ",
        ),
        (lambda text: text + GOOD[GOOD.index("[[cells]]") : GOOD.index("[[hosts]]")], "cells[1].name", "stands twice"),
        (lambda text: text + GOOD[GOOD.index("[[hosts]]") : GOOD.index("[arr")], "hosts[1].name", "stands twice"),
        (lambda text: text.replace("[arrivals]", "[[arrivals]]"), "arrivals", "must be a table"),
        (lambda text: text.replace("[[hosts]]", "[hosts]"), "hosts", "array of tables"),
    ],
)
def test_each_mistake_is_named_by_file_and_key(change: Callable[[str], str], key: str, detail: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(change(GOOD), file="mine.toml")
    assert caught.value.key == key
    assert detail in caught.value.detail
    assert str(caught.value).startswith(f"mine.toml: {key}: ")


def test_a_scenario_without_cells_is_refused() -> None:
    without = GOOD.replace(GOOD[GOOD.index("[[cells]]") : GOOD.index("[[hosts]]")], "")
    with pytest.raises(ScenarioError, match="cells: at least one"):
        parse_scenario(without, file="mine.toml")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="built in are accelerator-starved, cpu-starved, "):
        load_scenario("genrated")
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        load_scenario(str(tmp_path / "absent.toml"))
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(ScenarioError, match="is not TOML"):
        load_scenario(str(tmp_path / "bad.toml"))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ScenarioError, match="UTF-8"):
        load_scenario(str(tmp_path / "latin.toml"))
    (tmp_path / "good.toml").write_text(GOOD)
    assert load_scenario(str(tmp_path / "good.toml")).name == "good"


@pytest.mark.parametrize("name", built_in_scenarios())
def test_built_in_scenarios_have_their_own_name_and_gates_that_can_be_made(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    for host in scenario.hosts:
        assert gate_file_name(host.accelerator)
        assert "/" not in host.name
    assert len(scenario.ranker_hosts()) == scenario.processes.opportunistic_rankers


def test_the_generated_scenario_is_the_demo_that_is_promised() -> None:
    scenario = load_scenario("generated")
    assert len(scenario.cells) == 1
    assert len(scenario.hosts) == 2
    assert scenario.requests.deadline_ms == 500
    assert scenario.time.window_ms == 2_000
    stream = RequestStream(scenario, World(WorldConfig(num_ads=400)), start_ms=0)
    measured = stream.num_before(scenario.traffic_s) - stream.num_before(scenario.warm_up_s)
    assert scenario.duration_s >= 75.0
    assert measured / scenario.duration_s >= 50.0
    taken = [(event.at_s, event.host) for event in host_timeline(scenario) if event.action == "reclaim"]
    given = [(event.at_s, event.host) for event in host_timeline(scenario) if event.action == "offer"]
    first_s = taken[0][0]
    # All at once in the middle, for about 15 s; then a single host.
    assert [host for at_s, host in taken if at_s == first_s] == ["idle-a", "idle-b"]
    assert [at_s - first_s for at_s, _ in given[:2]] == [15.0, 15.0]
    assert len(taken) == 3
    assert given[-1][0] < scenario.duration_s


def test_the_quick_scenario_is_over_in_25_seconds() -> None:
    scenario = load_scenario("quick")
    assert scenario.traffic_s == 25.0


def test_stretching_keeps_the_shape_of_the_timeline() -> None:
    scenario = load_scenario("generated")
    twice = scenario.stretched(2 * scenario.duration_s)
    assert [event.at_s for event in host_timeline(twice)] == [2 * event.at_s for event in host_timeline(scenario)]
    assert twice.warm_up_s == scenario.warm_up_s
    with pytest.raises(ValueError, match="duration_s"):
        scenario.stretched(0.0)


def test_stretching_keeps_the_shape_of_what_only_the_twin_plays() -> None:
    scenario = load_scenario("generated")
    twin = replace(
        scenario.twin,
        surges=(Surge(at_s=10.0, duration_s=4.0, rate_factor=3.0),),
        mixes=(Mix(at_s=5.0, shares=(("a", 1.0),)), Mix(at_s=20.0, shares=(("b", 1.0),))),
    )
    twice = replace(scenario, twin=twin).stretched(2 * scenario.duration_s)
    assert twice.twin.surges == (Surge(at_s=20.0, duration_s=8.0, rate_factor=3.0),)
    assert [mix.at_s for mix in twice.twin.mixes] == [10.0, 40.0]


def test_rankers_take_the_usable_hosts_in_turn() -> None:
    text = GOOD.replace("opportunistic_rankers = 1", "opportunistic_rankers = 3")
    second = GOOD[GOOD.index("[[hosts]]") : GOOD.index("[arrivals]")].replace("host-a", "host-b")
    third = second.replace("host-b", "host-c").replace("memory_bytes = 1000", 'memory_bytes = 1\nunusable = "memory"')
    scenario = parse_scenario(text + second + third, file="mine.toml")
    assert [host.name for host in scenario.ranker_hosts()] == ["host-a", "host-b", "host-a"]


def test_a_run_counts_nearly_all_that_its_users_do() -> None:
    for name in ("quick", "generated", "three-routes"):
        scenario = load_scenario(name)
        world = World(WorldConfig())
        rng = np.random.default_rng(5)
        drawn = [each for user in range(400) for each in world.draw_outcomes(rng, user, np.arange(8))]
        late_s = np.array([each.delay_s for each in drawn if each.kind == "conversion"])
        delays_ms = late_s * scenario.outcomes.delay_scale * 1_000.0
        counted = delays_ms <= scenario.measurement.attribution_ms
        assert 0.95 < counted.mean() <= 1.0
        # And soon enough that a run sees it.
        assert scenario.measurement.attribution_ms < scenario.duration_s * 1_000 * 0.8
        assert scenario.measurement.cohort_ms == scenario.time.window_ms
    at_once = replace(load_scenario("quick"), outcomes=OutcomeSettings(delay_scale=0.0))
    assert at_once.measurement.attribution_ms == 2_000


def test_the_arms_of_a_scenario_are_those_of_its_routers() -> None:
    arms = load_scenario("three-routes").arms
    assert arms is not None
    experiment = parse_experiment(arms.to_toml())
    assert (experiment.arms.holdout_share, experiment.arms.rma_share, experiment.arms.sbm_share) == (0.1, 0.5, 0.5)
    assert experiment.explored_share == 0.2
    # Where it has none routers have their own.
    assert load_scenario("quick").arms is None
