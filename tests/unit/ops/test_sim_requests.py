"""Requests of a scenario: the same for a seed, valid as records, and dated by their arrival."""

from dataclasses import replace

import numpy as np
import pytest

from ops.simulator.requests import RequestStream, user_name, user_number
from ops.simulator.scenario import load_scenario
from ops.simulator.scenario_model import Scenario
from ops.simulator.twin_settings import TwinSettings, Upstream
from ops.simulator.world import World, WorldConfig
from schemas.framing import decode_as, encode
from schemas.records import RankingRequest

START_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldConfig(num_ads=400))


@pytest.fixture
def scenario() -> Scenario:
    return replace(load_scenario("quick"), warm_up_s=0.0, duration_s=3.0)


def test_requests_are_valid_records_with_the_scenarios_numbers(scenario: Scenario, world: World) -> None:
    for due in RequestStream(scenario, world, start_ms=START_MS).due():
        request = decode_as(encode(due.request), RankingRequest)
        assert request == due.request
        assert request.cell == "us-east"
        assert request.num_base_candidates == 32
        assert request.num_results == 8
        assert len(np.frombuffer(request.ad_ids, "<i8")) == 256
        assert request.intake_ms == START_MS + round(due.at_s * 1_000)
        assert request.deadline_ms == request.intake_ms + 500
        retrieval = np.frombuffer(request.retrieval_scores, "<f4")
        assert np.all(np.diff(retrieval) <= 0.0)


def test_the_same_seed_gives_the_same_requests_and_another_gives_others(scenario: Scenario, world: World) -> None:
    def records(of: Scenario) -> list[RankingRequest]:
        return [due.request for due in RequestStream(of, world, start_ms=START_MS).due()]

    first = records(scenario)
    assert records(scenario) == first
    other = records(replace(scenario, seed=scenario.seed + 1))
    assert [request.user_id for request in other] != [request.user_id for request in first]
    ids = [request.request_id for request in first]
    assert len(set(ids)) == len(ids)


def test_who_starts_late_sends_the_same_requests_from_there_on(scenario: Scenario, world: World) -> None:
    stream = RequestStream(scenario, world, start_ms=START_MS)
    everything = list(stream.due())
    late = list(stream.due(from_s=1.5))
    assert late == [due for due in everything if due.at_s >= 1.5]
    assert stream.num_before(1.5) + len(late) == len(everything)


def test_another_start_gives_other_ids(scenario: Scenario, world: World) -> None:
    first = {due.request.request_id for due in RequestStream(scenario, world, start_ms=START_MS).due()}
    second = {due.request.request_id for due in RequestStream(scenario, world, start_ms=START_MS + 1).due()}
    assert not first & second


def test_cells_share_the_traffic_as_asked_for(scenario: Scenario, world: World) -> None:
    (cell,) = scenario.cells
    cells = (replace(cell, traffic_share=3.0), replace(cell, name="us-west", traffic_share=1.0))
    requests = RequestStream(replace(scenario, cells=cells, duration_s=20.0), world, start_ms=START_MS).due()
    names = [due.request.cell for due in requests]
    assert names.count("us-east") / len(names) == pytest.approx(0.75, abs=0.05)


def test_users_are_found_again_by_name() -> None:
    assert user_number(user_name(4_999_999)) == 4_999_999
    assert user_number("u") is None
    assert user_number("someone") is None
    assert user_number("12") is None


def test_callers_say_what_they_spent_upstream_where_the_scenario_does(scenario: Scenario, world: World) -> None:
    def records(of: Scenario) -> list[RankingRequest]:
        return [due.request for due in RequestStream(of, world, start_ms=START_MS).due()]

    silent = records(scenario)
    assert {request.upstream_us for request in silent} == {0}
    telling = replace(scenario, twin=TwinSettings(upstream=Upstream(median_ms=20.0, p99_ms=50.0)))
    told = records(telling)
    assert records(telling) == told
    # Nothing else of a request depends on it.
    assert [request.user_id for request in told] == [request.user_id for request in silent]
    assert [request.ad_ids for request in told] == [request.ad_ids for request in silent]
    times_us = np.array([request.upstream_us for request in told])
    assert np.all(times_us > 0)
    assert 15_000 < np.median(times_us) < 25_000
    assert 0.0 <= np.mean(times_us > 50_000) < 0.1
    constant = replace(scenario, twin=TwinSettings(upstream=Upstream(median_ms=20.0, p99_ms=20.0)))
    assert {request.upstream_us for request in records(constant)} == {20_000}
