"""The parts around the pure ones: the clock, the logs, the groups, the places and the people of the twin by request."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ops.simulator.scenario import load_scenario
from ops.simulator.twin_settings import Day, Mix, Surge, Upstream
from ops.twin.requests.callers import Callers, people_of
from ops.twin.requests.curve import ServiceCurve, TimedScorer
from ops.twin.requests.demand import arrivals_s
from ops.twin.requests.engine import Engine
from ops.twin.requests.hops import Hops, Log
from ops.twin.requests.places import curve_of, dedicated_places, opportunistic_places, speed_of
from ops.twin.service import ServiceTimes
from ranking.models.inputs import CandidateChunk, Users

CURVE = ServiceCurve(batch_ns=1_000.0, call_ns=100_000.0, candidate_ns=1_000.0, task_ns=10.0)


@pytest.fixture(scope="module")
def quick():
    return load_scenario("quick")


def test_events_happen_by_time_and_those_of_one_moment_in_the_order_of_setting():
    engine = Engine(100)
    seen = []

    def happen(what):
        seen.append((engine.now_ns, what))
        if what == "b":
            # In the past: at once, behind what is set already.
            engine.at(50, happen, "d")

    for due_ns, what in ((120, "c"), (110, "a"), (110, "b"), (131, "never")):
        engine.at(due_ns, happen, what)
    engine.run(130)
    assert seen == [(110, "a"), (110, "b"), (110, "d"), (120, "c")]
    assert engine.now_ns == 130


def test_three_hops_take_what_was_measured():
    times = ServiceTimes(hops_median_ms=2.4, hops_p99_ms=10.0)
    hops = Hops(times, np.random.default_rng(1))
    sums_ms = [sum(hops.next_ns() for _ in range(3)) / 1e6 for _ in range(20_000)]
    median_ms, p99_ms = np.percentile(sums_ms, [50, 99])
    assert median_ms == pytest.approx(2.4, rel=0.1)
    assert p99_ms == pytest.approx(10.0, rel=0.15)


def test_a_log_keeps_its_order():
    log = Log(Hops(ServiceTimes(), np.random.default_rng(2)))
    places = [log.append(sent_ns) for sent_ns in range(0, 10_000_000, 1_000)]
    for (appended_ns, read_ns), (next_appended_ns, next_read_ns) in itertools.pairwise(places):
        assert appended_ns <= next_appended_ns
        assert read_ns <= next_read_ns
        assert appended_ns <= read_ns


def test_scoring_takes_its_time_and_says_what_the_retrieval_scores_hold():
    waited: list[float] = []
    scorer = TimedScorer(CURVE, version="v", wait=waited.append)
    features_F, history_H = np.zeros(3, dtype=np.float32), np.zeros(0, dtype=np.int64)
    encoded = scorer.prepare(Users.of_requests([features_F] * 2, [history_H] * 2))
    scores_N = np.array([0.5, 0.25], dtype=np.float32)
    chunk = CandidateChunk(
        ad_ids_N=np.arange(2),
        bids_N=scores_N,
        retrieval_scores_N=scores_N,
        request_of_candidate_N=np.zeros(2, dtype=np.int64),
    )
    assert (scorer.score_chunk(encoded, chunk) == scores_N).all()
    assert waited == [1_020.0, 102_000.0]


@pytest.mark.parametrize("units_per_s", [1_000.0, 100_000.0, 10_000_000.0])
def test_a_curve_is_scaled_to_the_work_units_of_its_hardware(units_per_s):
    curve = CURVE.at_rate(units_per_s, call_size=256)
    assert 256 / (curve.call_ns + 256 * curve.candidate_ns) * 1e9 == pytest.approx(units_per_s)
    assert 0.0 < curve.call_ns <= CURVE.call_ns


def test_a_curve_that_costs_nothing_is_refused():
    with pytest.raises(ValueError, match="cost nothing"):
        ServiceCurve(batch_ns=0.0, call_ns=1.0, candidate_ns=0.0, task_ns=1.0)


def test_places_follow_the_units_of_the_hosts_and_the_load_of_the_base(quick):
    big = replace(quick.hosts[0], name="big", units=2.6)
    small = replace(quick.hosts[0], name="small", units=0.5)
    useless = replace(quick.hosts[0], name="useless", unusable="memory")
    scenario = replace(quick, hosts=(big, small, useless))
    places = opportunistic_places(scenario)
    assert [(place.host and place.host.name, place.units) for place in places] == [
        *[("big", pytest.approx(2.6 / 3))] * 3,
        ("small", 0.5),
    ]
    assert len({place.name for place in places}) == len(places)
    half = curve_of(places[-1], "rma", CURVE)
    assert half.call_ns + 256 * half.candidate_ns == pytest.approx(
        256e9 / (0.5 * quick.cells[0].limits.units_per_unit_s)
    )
    assert len(dedicated_places(scenario)) == scenario.processes.dedicated_rankers
    # 32 candidates at 20,000 a second and half loaded: 312 requests a second each.
    busy = replace(scenario, arrivals=replace(scenario.arrivals, rate_per_s=1_600.0))
    assert len(dedicated_places(busy)) == 6


def test_a_surge_of_speed_and_an_update_of_the_offer_change_the_speed_of_a_place(quick):
    scenario = replace(
        quick,
        twin=replace(quick.twin, surges=(Surge(at_s=2.0, duration_s=1.0, speed_factor=0.25),)),
        capacity_changes=(
            replace(quick.capacity_changes[0], action="update", at_s=4.0, duration_s=None, units=0.5, hosts="idle-a"),
        ),
    )
    first, other = opportunistic_places(scenario)
    speed = speed_of(first, scenario, zero_ns=0)
    assert [speed(round(at_s * 1e9)) for at_s in (1.0, 2.0, 3.0, 4.0)] == [1.0, 0.25, 1.0, 0.5]
    assert speed_of(other, scenario, zero_ns=0)(4_000_000_000) == 1.0


def drawn(scenario, *, seed=1, width=lambda _: 0.0):
    return list(Callers(scenario, people_of(scenario, seed=seed), seed=seed, start_ms=0, width=width).requests())


def test_a_seed_gives_the_same_requests_whose_arrays_are_shared(quick):
    requests = drawn(quick)
    assert requests == drawn(quick)
    assert requests != drawn(quick, seed=2)
    assert len({request.request_id for _, request in requests}) == len(requests) > 500
    people = people_of(quick, seed=1)
    assert all(request.ad_ids is people.by_user[request.user_id].ad_ids for _, request in requests)


def test_a_persons_worth_is_that_of_the_ads_that_are_shown(quick):
    person = people_of(quick, seed=1).all[0]
    best = np.argsort(-person.believed_N[:32], kind="stable")[:8]
    expected = sum(person.value_micro[int(ad)] for ad in person.ad_ids_N[best])
    assert person.base_worth_micro(32, 8) == expected
    assert person.worth_micro(person.ad_ids[: 3 * 8]) == sum(person.value_micro[int(ad)] for ad in person.ad_ids_N[:3])


def test_mixes_decide_of_which_segment_those_are_who_ask(quick):
    shares = {"finance": 0.0, "travel": 1.0, "retail": 0.0, "gaming": 0.0}
    later = {"finance": 0.5, "travel": 0.5, "retail": 0.0, "gaming": 0.0}
    mixes = (Mix(at_s=0.0, shares=tuple(shares.items())), Mix(at_s=10.0, shares=tuple(later.items())))
    requests = drawn(replace(quick, twin=replace(quick.twin, mixes=mixes)))
    first = {request.advertiser_segment for at_s, request in requests if at_s < quick.warm_up_s + 10.0}
    assert first == {"travel"}
    second = [request.advertiser_segment for at_s, request in requests if at_s >= quick.warm_up_s + 10.0]
    assert second.count("finance") / len(second) == pytest.approx(0.5, abs=0.1)


def test_callers_say_what_they_spent_upstream_and_more_for_more_candidates(quick):
    assert {request.upstream_us for _, request in drawn(quick)} == {0}
    twin = replace(quick.twin, upstream=Upstream(median_ms=20.0, p99_ms=60.0, rise_share=0.5))
    narrow, wide = (
        np.array(
            [request.upstream_us for _, request in drawn(replace(quick, twin=twin), width=lambda _, width=width: width)]
        )
        for width in (0.0, 1.0)
    )
    assert np.median(narrow) == pytest.approx(20_000.0, rel=0.1)
    assert wide == pytest.approx(1.5 * narrow, abs=1)


def test_a_day_and_a_surge_shape_the_arrivals(quick):
    plain = list(arrivals_s(quick, np.random.default_rng(1)))
    surge = Surge(at_s=10.0, duration_s=5.0, rate_factor=3.0)
    surged = list(arrivals_s(replace(quick, twin=replace(quick.twin, surges=(surge,))), np.random.default_rng(1)))

    def within(times_s, start_s, end_s):
        return sum(quick.warm_up_s + start_s <= at_s < quick.warm_up_s + end_s for at_s in times_s)

    assert within(surged, 10.0, 15.0) == pytest.approx(3 * within(plain, 10.0, 15.0), rel=0.25)
    assert within(surged, 0.0, 10.0) == pytest.approx(within(plain, 0.0, 10.0), rel=0.2)
    day = Day(period_s=20.0, swing=1.0, peak_s=5.0)
    swung = list(arrivals_s(replace(quick, twin=replace(quick.twin, day=day)), np.random.default_rng(1)))
    assert within(swung, 2.5, 7.5) > 5 * within(swung, 12.5, 17.5)
