"""Outcomes: drawn from the truth, the same for a result read twice, sent when due, committed when all are sent."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ops.simulator.outcomes import OutcomeSchedule, Place
from ops.simulator.world import World, WorldConfig
from schemas.framing import decode_as, encode
from schemas.records import RankingOutcome, RankingResult

COMPLETED_MS = 1_800_000_000_000
FOREVER_MS = COMPLETED_MS + 10**9
AD_IDS = np.array([5, 7, 11, 13], dtype="<i8")


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldConfig(num_ads=400, base_log_odds=0.0, conversion_probability=0.5))


def schedule(world: World, *, seed: int = 3, delay_scale: float = 1.0) -> OutcomeSchedule:
    return OutcomeSchedule(world, seed=seed, delay_scale=delay_scale)


def result(request_id: str = "r-1", **changes: Any) -> RankingResult:
    made = RankingResult(
        request_id=request_id,
        user_id="u42",
        cell="us-east",
        status="ok",
        error="",
        late=False,
        degraded=False,
        takeover=False,
        intake_ms=COMPLETED_MS - 50,
        deadline_ms=COMPLETED_MS + 450,
        completed_ms=COMPLETED_MS,
        base_latency_us=1,
        latency_us=1,
        num_base_attempts=1,
        num_base_candidates=4,
        num_candidates_offered=4,
        num_candidates_ranked=4,
        ad_ids=AD_IDS.tobytes(),
        scores=np.zeros(4, "<f4").tobytes(),
        routes=["baseline"],
        model_versions=["m"],
        arm="both",
        dose=0,
        target_window_index=None,
        optional=[],
        router="router-0",
        attribution_token="1|us-east|both|0|1|finance",
        platform="app",
        advertiser_segment="finance",
    )
    return replace(made, **changes)


def all_outcomes(of: OutcomeSchedule) -> list[RankingOutcome]:
    return [outcome for outcome, _ in of.due(FOREVER_MS)]


def test_outcomes_are_valid_records_that_echo_their_result(world: World) -> None:
    waiting = schedule(world)
    waiting.take(result(), Place(0, 0))
    outcomes = all_outcomes(waiting)
    assert [outcome.kind for outcome in outcomes].count("view") == 4
    assert {"click", "conversion"} < {outcome.kind for outcome in outcomes}
    for outcome in outcomes:
        assert decode_as(encode(outcome), RankingOutcome) == outcome
        assert outcome.attribution_token == "1|us-east|both|0|1|finance"
        assert (outcome.request_id, outcome.user_id, outcome.cell) == ("r-1", "u42", "us-east")
        assert (outcome.platform, outcome.advertiser_segment) == ("app", "finance")
        assert outcome.exposure_time_ms == COMPLETED_MS
        assert outcome.ad_id in AD_IDS
    assert len({outcome.outcome_id for outcome in outcomes}) == len(outcomes)


def test_clicks_come_as_often_as_the_truth_says_and_are_worth_the_bid(world: World) -> None:
    waiting = schedule(world)
    for index in range(1_500):
        waiting.take(result(f"r-{index}"), Place(0, index))
    clicks = [outcome for outcome in all_outcomes(waiting) if outcome.kind == "click"]
    truth = world.click_probability(42, AD_IDS.astype(np.int64))
    bids = dict(zip(AD_IDS.tolist(), world.bids(42, AD_IDS.astype(np.int64)).tolist(), strict=True))
    for ad_id, probability in zip(AD_IDS.tolist(), truth.tolist(), strict=True):
        share = sum(click.ad_id == ad_id for click in clicks) / 1_500
        assert share == pytest.approx(probability, abs=5 * (probability * (1 - probability) / 1_500) ** 0.5)
    assert all(click.value == pytest.approx(bids[click.ad_id]) for click in clicks)


def test_a_result_read_again_gives_the_same_outcomes_and_another_seed_gives_others(world: World) -> None:
    def drawn(seed: int) -> list[RankingOutcome]:
        waiting = schedule(world, seed=seed)
        # What was read before must not matter.
        for index in range(seed):
            waiting.take(result(f"other-{index}", status="error"), Place(1, index))
        waiting.take(result(), Place(0, 0))
        return all_outcomes(waiting)

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_a_result_delivered_twice_is_shown_once(world: World) -> None:
    waiting = schedule(world)
    waiting.take(result(), Place(0, 0))
    first = all_outcomes(waiting)
    waiting.take(result(), Place(0, 1))
    assert first
    assert all_outcomes(waiting) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "error"},
        {"late": True},
        {"ad_ids": b"", "scores": b""},
        {"user_id": "stranger"},
        {"ad_ids": np.array([400], "<i8").tobytes(), "scores": b"\0\0\0\0"},
        {"ad_ids": np.array([-1], "<i8").tobytes(), "scores": b"\0\0\0\0"},
    ],
)
def test_what_nobody_sees_has_no_outcome_and_holds_up_no_commit(world: World, changes: dict[str, Any]) -> None:
    waiting = schedule(world)
    waiting.take(result(**changes), Place(0, 17))
    assert all_outcomes(waiting) == []
    assert waiting.committable() == {0: 18}


def test_outcomes_wait_until_they_are_due_in_order_of_time(world: World) -> None:
    waiting = schedule(world)
    for index in range(20):
        waiting.take(result(f"r-{index}"), Place(0, index))
    planned = waiting.num_waiting
    seen: list[RankingOutcome] = []
    while (due_ms := waiting.next_due_ms) is not None:
        assert waiting.due(due_ms - 1) == []
        taken = waiting.due(due_ms)
        assert {outcome.event_time_ms for outcome, _ in taken} == {due_ms}
        seen += [outcome for outcome, _ in taken]
    assert len(seen) == planned
    assert [outcome.event_time_ms for outcome in seen] == sorted(outcome.event_time_ms for outcome in seen)


def test_delays_are_scaled(world: World) -> None:
    whole, tenth = schedule(world), schedule(world, delay_scale=0.1)
    for each in (whole, tenth):
        each.take(result(), Place(0, 0))
    pairs = zip(all_outcomes(whole), all_outcomes(tenth), strict=True)
    for slow, fast in pairs:
        assert slow.outcome_id == fast.outcome_id
        delay_ms = slow.event_time_ms - COMPLETED_MS
        assert fast.event_time_ms - COMPLETED_MS == pytest.approx(delay_ms / 10, abs=1.0)


def test_a_result_is_committed_once_all_its_outcomes_are_acknowledged(world: World) -> None:
    waiting = schedule(world)
    waiting.take(result("r-0"), Place(0, 4))
    waiting.take(result("r-1", status="error"), Place(0, 5))
    waiting.take(result("r-2"), Place(1, 9))
    assert waiting.committable() == {0: 4, 1: 9}
    taken = [place for _, place in waiting.due(FOREVER_MS)]
    own = [place for place in taken if place.partition == 0]
    for place in own[:-1]:
        waiting.sent(place)
        assert waiting.committable()[0] == 4
    waiting.sent(own[-1])
    assert waiting.committable() == {0: 6, 1: 9}


def test_an_unreadable_record_is_committed_once_it_is_dealt_with(world: World) -> None:
    waiting = schedule(world)
    waiting.begin(Place(0, 4))
    assert waiting.committable() == {0: 4}
    waiting.finish(Place(0, 4))
    assert waiting.committable() == {0: 5}
