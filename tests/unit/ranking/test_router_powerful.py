"""The powerful route: one piece of work for all base candidates, whose scores replace theirs, or nothing."""

from collections import Counter
from itertools import count

import numpy as np
import pytest

from ranking.router.policy import RouterPolicy
from schemas.histogram import ExponentialHistogram
from schemas.records import SegmentShare, UpgradeValue
from tests.unit.ranking.router_driver import BUDGET_MS, START_MS, TRACE, Driver, all_shed, request_of, target_of

OPTIONAL_BY_MS = START_MS + 0.7 * BUDGET_MS


def ids(result):
    return np.frombuffer(result.ad_ids, dtype="<i8").tolist()


def upgrading(*, candidates=100, policy=None, **target):
    """A router of whose requests every one is upgraded."""
    driver = Driver(policy=policy)
    driver.core.targets.update(target_of(candidates, other_share=1.0, **target))
    return driver


def accounts(driver):
    """Units by lever and end, of all intervals."""
    found: Counter[tuple[str, str]] = Counter()
    for interval in driver.intervals:
        for account in interval.accounts:
            assert account.offered == account.admitted + account.late + account.lost + sum(
                shed.units for shed in account.sheds
            )
            found[account.lever, "admitted"] += account.admitted
            found[account.lever, "late"] += account.late
            found[account.lever, "lost"] += account.lost
            for shed in account.sheds:
                found[account.lever, shed.reason] += shed.units
    return {name: units for name, units in found.items() if units}


def test_an_upgrade_is_one_chunk_of_all_base_candidates_and_its_scores_replace_theirs():
    driver = upgrading()
    base, powerful = driver.request()
    work = powerful.work
    assert (powerful.route, work.route, work.lever, work.attempt) == ("powerful", "powerful", "sbm", 0)
    assert (work.ad_ids, work.bids, work.retrieval_scores) == (
        base.work.ad_ids,
        base.work.bids,
        base.work.retrieval_scores,
    )
    assert (work.chunk_size, work.chunk_values_micro, work.propensity) == (100, [1_000], 1.0)
    assert work.deadline_ms == OPTIONAL_BY_MS - RouterPolicy().optional_margin_ms
    assert powerful.trace == TRACE

    driver.answer(base, scores=np.arange(100), model_version="weak")
    assert driver.results == []
    driver.now_ms += 8.0
    driver.answer(powerful, scores=-np.arange(100.0), model_version="strong")
    (result,) = driver.results
    assert ids(result) == list(range(10))
    assert np.frombuffer(result.scores, dtype="<f4").tolist() == [-float(place) for place in range(10)]
    assert (result.routes, result.model_versions) == (["baseline", "powerful"], ["weak", "strong"])
    assert (result.flipped, result.upgrade_assigned, result.upgrade_propensity) == (True, True, 1.0)
    (item,) = result.optional
    assert (item.lever, item.route, item.state, item.units, item.cost_units) == ("sbm", "powerful", "admitted", 1, 100)


def test_extras_are_merged_with_the_upgrade_and_the_flip_is_against_base_scores_with_the_same_extras():
    driver = upgrading(candidates=200)
    base, wide, powerful = driver.request()
    driver.answer(base, scores=np.full(100, 0.1))
    driver.answer(wide, scores=np.full(100, 0.2))
    driver.answer(powerful, scores=np.full(100, 0.15))
    # The extras win against either: the stronger model has changed nothing that is shown.
    assert ids(driver.results[0]) == list(range(100, 110))
    assert (driver.results[0].flipped, driver.results[0].routes) == (False, ["baseline", "wide", "powerful"])

    base, wide, powerful = driver.request(request_of("r2"))
    driver.answer(powerful, scores=np.full(100, 0.3))
    driver.answer(wide, scores=np.full(100, 0.2))
    driver.answer(base, scores=np.full(100, 0.1))
    assert ids(driver.results[1]) == list(range(10))
    assert driver.results[1].flipped is True
    assert driver.results[1].num_candidates_ranked == 200


def test_another_order_of_the_same_ads_is_no_flip():
    driver = upgrading()
    base, powerful = driver.request()
    driver.answer(base, scores=-np.arange(100.0))
    driver.answer(powerful, scores=[*np.arange(10.0), *np.full(90, -1.0)])
    assert ids(driver.results[0]) == list(range(9, -1, -1))
    assert driver.results[0].flipped is False


@pytest.mark.parametrize(
    "answer",
    [
        {"scores": np.ones(99)},
        {"scores": [*np.ones(99), np.nan]},
        {"scores": [*np.ones(99), np.inf]},
        {"scored": [], "scores": []},
        {"scored": [1], "scores": np.ones(100)},
        {"error": "out of memory"},
    ],
    ids=["too few", "not a number", "infinite", "says nothing", "no such chunk", "error"],
)
def test_an_answer_that_is_of_no_use_leaves_the_base_ranking(answer):
    driver = upgrading()
    base, powerful = driver.request()
    driver.answer(powerful, **answer)
    driver.answer(base, scores=np.arange(100))
    (result,) = driver.results
    assert ids(result) == list(range(99, 89, -1))
    assert (result.routes, result.flipped, result.upgrade_assigned) == (["baseline"], None, True)
    assert [(item.state, item.reason) for item in result.optional] == [("shed", "error")]


def test_an_upgrade_is_waited_for_no_longer_than_extras_and_accounted_for_as_one_request():
    driver = upgrading(policy=RouterPolicy(probe_interval_ms=10_000))
    late, lost, shed, admitted = (driver.request(request_of(f"r{number}")) for number in range(4))
    for base, _ in (late, lost, shed, admitted):
        driver.answer(base)
    driver.answer(shed[1], sheds=all_shed(shed[1].work, "value"), scores=[])
    driver.answer(admitted[1])
    driver.advance(OPTIONAL_BY_MS - 0.5)
    assert [result.request_id for result in driver.results] == ["r2", "r3"]
    driver.advance(OPTIONAL_BY_MS)
    assert [item.state for result in driver.results[2:] for item in result.optional] == ["pending", "pending"]
    assert not any(result.late for result in driver.results)
    driver.answer(late[1])
    driver.advance(START_MS + BUDGET_MS + 3_000)
    assert accounts(driver) == {("sbm", "admitted"): 1, ("sbm", "value"): 1, ("sbm", "late"): 1, ("sbm", "lost"): 1}
    routes = [route for interval in driver.intervals for route in interval.routes if route.route == "powerful"]
    assert sum(route.num_work for route in routes) == 4
    assert (sum(route.num_answered for route in routes), sum(route.num_lost for route in routes)) == (3, 1)
    assert sum(route.num_late for route in routes) == 0


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_slow_or_lost_upgrade_is_no_latency_that_extras_would_be_cut_for(is_lost):
    driver = upgrading()
    base, powerful = driver.request()
    driver.now_ms += 10.0
    driver.answer(base)
    driver.now_ms += 150.0
    if not is_lost:
        driver.answer(powerful)
    driver.advance(START_MS + 4_000)
    (latency,) = [interval.latency for interval in driver.intervals if interval.latency.count]
    seen = ExponentialHistogram.from_fields(**{name: getattr(latency, name) for name in latency.__struct_fields__})
    assert seen.count == 1
    assert seen.quantile(1.0) == pytest.approx(10.0, rel=seen.relative_error)


def test_a_route_without_a_living_replica_is_left_and_costs_no_base_answer():
    driver = upgrading(policy=RouterPolicy(probe_interval_ms=10_000))
    for number in range(60):
        for sent in driver.request(request_of(f"r{number}", now_ms=driver.now_ms)):
            if sent.route == "baseline":
                driver.answer(sent)
        driver.advance(driver.now_ms + 50)
    assert [(item.state, item.reason) for item in driver.results[-1].optional] == [("shed", "route_silent")]
    assert not any(result.late or result.degraded for result in driver.results)
    assert len(driver.on("powerful")) < 30


def test_nothing_is_sent_where_the_pool_can_pay_for_nothing_or_one_chunk_cannot_hold_the_base():
    driver = Driver()
    driver.core.targets.update(target_of(100, other_share=1.0, powerful_budget_units_s=0.0))
    (base,) = driver.request()
    driver.answer(base)
    assert (driver.results[0].upgrade_assigned, driver.results[0].upgrade_propensity) == (False, 0.0)
    driver = upgrading()
    (base,) = driver.request(num_candidates=1_025, num_base=1_025)
    driver.answer(base)
    assert (driver.results[0].upgrade_assigned, driver.results[0].upgrade_propensity) == (False, 0.0)
    assert len(driver.request(request_of("r2", num_candidates=1_024, num_base=1_024))) == 2


def test_without_its_base_answer_an_upgrade_is_no_ranking():
    driver = upgrading(policy=RouterPolicy(degrade_after_ms=700))
    _, powerful = driver.request()
    driver.answer(powerful)
    driver.advance(START_MS + BUDGET_MS + 700)
    (result,) = driver.results
    assert (result.degraded, result.routes, ids(result), result.flipped) == (True, [], [], None)
    assert [(item.state, item.reason) for item in result.optional] == [("shed", "no_base")]
    driver.advance(START_MS + 10_000)
    assert accounts(driver) == {("sbm", "no_base"): 1}


def test_a_pressed_route_keeps_the_upgrades_of_the_segments_that_gain_most():
    driver = Driver(num_partitions=1)
    driver.core.targets.update(
        target_of(
            100,
            other_share=1.0,
            upgrade_values=[
                UpgradeValue(segment="retail", value_micro=9_000),
                UpgradeValue(segment="b", value_micro=9),
            ],
        )
    )
    names = count()

    def asked(segment):
        works = driver.request(request_of(f"r{next(names)}", now_ms=driver.now_ms, advertiser_segment=segment))
        driver.answer(works[0])
        return works[1:]

    (first,) = asked("retail")
    # Two thirds are held back, as its pressure says; it says so again with each answer.
    driver.answer(first, pressure=0.9)
    sent: Counter[str] = Counter()
    for _ in range(100):
        for segment in ("travel", "retail", "travel", "travel"):
            for work in asked(segment):
                sent[segment] += 1
                driver.answer(work, pressure=0.9)
    assert sent["retail"] > 80
    # But for the first few, before the gate knew what else there is.
    assert sent["travel"] < 10
    assert {item.reason for item in driver.results[-1].optional} == {"pressure"}


def test_what_was_routed_is_counted_by_segment():
    driver = Driver(policy=RouterPolicy(probe_interval_ms=10_000))
    driver.core.targets.update(target_of(100, segment_shares=[SegmentShare(segment="retail", share=1.0)]))
    for number, segment in enumerate(["retail", "retail", "b"]):
        driver.request(request_of(f"r{number}", advertiser_segment=segment))
    driver.advance(START_MS)
    (interval,) = driver.intervals
    assert {each.segment: (each.num_allowed, each.num_routed) for each in interval.segments} == {
        "b": (1, 0),
        "retail": (2, 2),
    }
