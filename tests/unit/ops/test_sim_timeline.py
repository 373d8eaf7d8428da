"""The timeline of hosts: overlapping reclaims are one, and chance is decided by the seed."""

from dataclasses import replace

from ops.simulator.scenario import load_scenario
from ops.simulator.scenario_model import CapacityAction, CapacityChange, RandomReclaims, Scenario
from ops.simulator.timeline import host_timeline


def change(
    at_s: float,
    action: CapacityAction,
    *,
    duration_s: float | None = None,
    units: float | None = None,
    hosts: str = "*",
) -> CapacityChange:
    return CapacityChange(at_s=at_s, hosts=hosts, action=action, reason="why", duration_s=duration_s, units=units)


def scenario_with(*changes: CapacityChange, offered_at_start: bool = True) -> Scenario:
    base = load_scenario("quick")
    host = replace(base.hosts[0], name="h", offered_at_start=offered_at_start)
    return replace(base, hosts=(host,), capacity_changes=changes)


def happenings(scenario: Scenario) -> list[tuple[float, str]]:
    return [(event.at_s, event.action) for event in host_timeline(scenario)]


def test_reclaims_that_overlap_or_touch_are_one() -> None:
    scenario = scenario_with(
        change(1.0, "reclaim", duration_s=4.0),
        change(2.0, "reclaim", duration_s=1.0),
        change(4.0, "reclaim", duration_s=3.0),
        change(7.0, "reclaim", duration_s=1.0),
        change(9.0, "reclaim", duration_s=1.0),
    )
    assert happenings(scenario) == [(1.0, "reclaim"), (8.0, "offer"), (9.0, "reclaim"), (10.0, "offer")]


def test_an_offer_ends_a_reclaim_without_end_and_one_under_way() -> None:
    scenario = scenario_with(
        change(1.0, "reclaim"), change(3.0, "offer"), change(5.0, "reclaim", duration_s=9.0), change(6.0, "offer")
    )
    assert happenings(scenario) == [(1.0, "reclaim"), (3.0, "offer"), (5.0, "reclaim"), (6.0, "offer")]


def test_a_reclaim_without_end_lasts() -> None:
    assert happenings(scenario_with(change(1.0, "reclaim"))) == [(1.0, "reclaim")]


def test_a_host_absent_at_the_start_is_not_taken_back_before_it_is_offered() -> None:
    scenario = scenario_with(change(1.0, "reclaim", duration_s=1.0), change(4.0, "offer"), offered_at_start=False)
    assert happenings(scenario) == [(4.0, "offer")]


def test_an_update_with_a_duration_is_undone() -> None:
    events = host_timeline(scenario_with(change(2.0, "update", units=0.5, duration_s=3.0)))
    assert [(event.at_s, event.action, event.units) for event in events] == [(2.0, "update", 0.5), (5.0, "update", 1.0)]


def test_a_notice_says_how_far_ahead_it_is() -> None:
    (event,) = host_timeline(scenario_with(change(2.0, "notice", duration_s=3.0)))
    assert (event.action, event.ahead_s, event.reason) == ("notice", 3.0, "why")


def test_random_reclaims_are_the_same_for_a_seed_and_stay_when_hosts_are_added() -> None:
    base = load_scenario("quick")
    chance = RandomReclaims(hosts="*", per_host_per_minute=30.0, mean_duration_s=1.0, reason="owner")
    two = replace(base, capacity_changes=(), random_reclaims=chance, duration_s=600.0)
    one = replace(two, hosts=two.hosts[:1])
    first = [event for event in host_timeline(two) if event.host == two.hosts[0].name]
    assert host_timeline(two) == host_timeline(two)
    assert list(host_timeline(one)) == first
    assert host_timeline(replace(two, seed=99)) != host_timeline(two)
    assert first != [replace(e, host=first[0].host) for e in host_timeline(two) if e.host == two.hosts[1].name]


def test_random_reclaims_come_as_often_and_last_as_long_as_asked_for() -> None:
    base = load_scenario("quick")
    chance = RandomReclaims(hosts="*", per_host_per_minute=2.0, mean_duration_s=1.0, reason="owner")
    scenario = replace(base, capacity_changes=(), random_reclaims=chance, duration_s=36_000.0)
    events = host_timeline(replace(scenario, hosts=scenario.hosts[:1]))
    taken = [event.at_s for event in events if event.action == "reclaim"]
    given = [event.at_s for event in events if event.action == "offer"]
    # 1,200 expected, less the 3 % that fall into another; five standard deviations either way.
    assert 1_000 < len(taken) < 1_350
    assert 0.85 < sum(end - start for start, end in zip(taken, given, strict=True)) / len(taken) < 1.2
