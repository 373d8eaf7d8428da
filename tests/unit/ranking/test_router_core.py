"""Rules of the router, one by one, on a fake clock."""

import numpy as np
import pytest

from ranking.router.policy import RouterPolicy
from schemas.records import ChunkShed
from tests.unit.ranking.router_driver import BUDGET_MS, START_MS, TRACE, Driver, all_shed, request_of, target_of

# Until then extras are waited for, and until then base work.
ANSWER_BY_MS = START_MS + 0.7 * BUDGET_MS
LAST_MOMENT_MS = START_MS + BUDGET_MS - 5.0


def ids(result):
    return np.frombuffer(result.ad_ids, dtype="<i8").tolist()


def test_base_work_is_sent_at_once_and_its_answer_is_the_result():
    driver = Driver()
    (sent,) = driver.request()
    assert sent.route == "baseline"
    assert sent.trace == TRACE
    assert (sent.work.lever, sent.work.propensity, sent.work.chunk_values_micro) == (None, 1.0, [0])
    assert len(sent.work.ad_ids) == 8 * 100
    assert sent.work.deadline_ms == START_MS + BUDGET_MS

    driver.now_ms += 12.5
    scores = np.zeros(100)
    scores[[70, 3, 41]] = [3.0, 2.0, 2.0]
    driver.answer(sent, scores=scores)
    (result,) = driver.results
    assert ids(result)[:3] == [70, 3, 41]
    assert ids(result)[3:] == [0, 1, 2, 4, 5, 6, 7]
    assert (result.late, result.degraded, result.takeover, result.status) == (False, False, False, "ok")
    assert (result.base_latency_us, result.latency_us) == (12_500, 12_500)
    assert (result.routes, result.model_versions) == (["baseline"], ["m1"])
    assert driver.published[0].trace == TRACE


def test_a_score_that_is_no_number_is_left_out():
    driver = Driver()
    (sent,) = driver.request(num_base=3, num_results=3)
    driver.answer(sent, scores=[np.nan, 1.0, np.inf])
    assert ids(driver.results[0]) == [1]
    assert driver.results[0].num_candidates_ranked == 1


def test_extras_are_what_the_target_asks_for_and_are_merged():
    driver = Driver()
    driver.core.targets.update(target_of(350))
    base, wide = driver.request()
    assert wide.work.lever == "rma"
    assert len(wide.work.ad_ids) == 8 * 250
    assert wide.work.first_position == 100
    assert len(wide.work.chunk_values_micro) == 2
    assert wide.work.chunk_values_micro[0] > wide.work.chunk_values_micro[1] > 0
    assert wide.work.deadline_ms < ANSWER_BY_MS
    driver.answer(base, scores=np.zeros(100))
    assert driver.results == []
    driver.answer(wide, scores=np.arange(250))
    (result,) = driver.results
    assert ids(result) == list(range(349, 339, -1))
    assert result.dose == 250
    assert result.num_candidates_ranked == 350
    assert [item.state for item in result.optional] == ["admitted", "admitted"]
    assert sum(item.units for item in result.optional) == 250
    assert result.routes == ["baseline", "wide"]


@pytest.mark.parametrize(
    ("target", "at_ms"),
    [(None, START_MS), (target_of(350, valid_until_ms=START_MS - 1), START_MS), (target_of(80), START_MS)],
    ids=["no target", "expired", "below base"],
)
def test_blind_means_base(target, at_ms):
    driver = Driver()
    if target is not None:
        driver.core.targets.update(target)
    driver.now_ms = at_ms
    (sent,) = driver.request()
    driver.answer(sent)
    assert sent.route == "baseline"
    assert driver.results[0].dose == 0
    assert driver.results[0].optional == []


def test_answer_by_time_publishes_with_what_there_is():
    driver = Driver()
    driver.core.targets.update(target_of(350))
    base, _ = driver.request()
    driver.answer(base)
    driver.advance(ANSWER_BY_MS - 0.5)
    assert driver.results == []
    driver.advance(ANSWER_BY_MS)
    (result,) = driver.results
    assert [item.state for item in result.optional] == ["pending", "pending"]
    assert not result.late


def test_a_missing_base_answer_is_waited_for_and_published_the_moment_it_comes():
    driver = Driver(num_partitions=1)
    driver.core.targets.update(target_of(350))
    base, wide = driver.request()
    driver.answer(wide, scores=np.ones(250))
    driver.advance(START_MS + 290 + 8)
    driver.answer(base)
    assert not driver.results[0].late
    other = driver.request(request_of("r2", now_ms=driver.now_ms))[0]
    driver.advance(driver.now_ms + BUDGET_MS + 40)
    assert len(driver.results) == 1
    driver.answer(other)
    assert driver.results[1].late
    assert not driver.results[1].degraded


def test_base_that_never_comes_ends_degraded_at_a_bounded_time():
    driver = Driver(policy=RouterPolicy(degrade_after_ms=700))
    driver.core.targets.update(target_of(350))
    _, wide = driver.request()
    driver.answer(wide)
    driver.advance(START_MS + BUDGET_MS + 699)
    assert driver.results == []
    driver.advance(START_MS + BUDGET_MS + 700)
    (result,) = driver.results
    assert (result.degraded, result.status, result.late, ids(result)) == (True, "ok", True, [])
    assert {item.reason for item in result.optional} == {"no_base"}
    driver.advance(START_MS + 10_000)
    assert driver.totals() == {"offered": 250, "shed:no_base": 250}


def test_overdue_base_work_is_sent_once_elsewhere_and_the_first_answer_counts():
    driver = Driver()
    (first,) = driver.request()
    driver.advance(START_MS + 0.4 * BUDGET_MS - 1)
    assert len(driver.works) == 1
    driver.advance(START_MS + 0.4 * BUDGET_MS)
    _, second = driver.works
    assert second.partition != first.partition
    assert second.work.attempt == 1
    driver.advance(START_MS + 2 * BUDGET_MS / 3)
    assert len(driver.works) == 2
    driver.answer(second, scores=np.arange(100))
    driver.answer(first)
    (result,) = driver.results
    assert ids(result)[0] == 99
    assert result.num_base_attempts == 2
    assert not result.late


def test_a_silent_partition_is_left_at_once_and_cleared_by_its_answer():
    driver = Driver()
    (first,) = driver.request()
    driver.advance(START_MS + 0.4 * BUDGET_MS)
    for number in range(40):
        (sent,) = driver.request(request_of(f"n{number}", now_ms=driver.now_ms))
        assert sent.partition != first.partition
        driver.answer(sent)
    driver.answer(first)
    chosen = set()
    for number in range(40):
        (sent,) = driver.request(request_of(f"m{number}", now_ms=driver.now_ms))
        chosen.add(sent.partition)
        driver.answer(sent)
    assert first.partition in chosen


def test_a_retry_avoids_all_partitions_of_the_silent_replica():
    for seed_user in range(12):
        driver = Driver()
        # Two replicas: one owns partitions 0 and 1, the other 2 and 3.
        owners: set[int] = set()
        while len(owners) < 4:
            (sent,) = driver.request(request_of(f"w{len(driver.works)}", now_ms=driver.now_ms))
            owners.add(sent.partition)
            driver.answer(sent, ranker=f"replica-{sent.partition // 2}")
        (first,) = driver.request(request_of("r", user_id=f"u{seed_user}", now_ms=driver.now_ms))
        driver.advance(driver.now_ms + BUDGET_MS / 2)
        assert driver.works[-1].work.attempt == 1
        assert driver.works[-1].partition // 2 != first.partition // 2


def test_retries_stop_at_the_budget():
    driver = Driver(policy=RouterPolicy(retry_burst=3, retry_share=0.001))
    for number in range(20):
        driver.now_ms += 50
        driver.request(request_of(f"r{number}", now_ms=driver.now_ms))
        driver.advance(driver.now_ms)
    assert driver.works[-1].work.attempt == 0
    driver.advance(driver.now_ms + 150)
    retries = [sent for sent in driver.works if sent.work.attempt == 1]
    # The burst, or all that was sent in two overdue times (240 ms) where that is more.
    assert len(retries) == 6


def test_a_request_taken_in_with_little_time_left_has_no_extras_and_nobody_is_suspected():
    driver = Driver()
    driver.core.targets.update(target_of(350))
    request = request_of()
    driver.now_ms = START_MS + 0.8 * BUDGET_MS
    works = driver.request(request, append_ms=START_MS)
    assert [sent.route for sent in works] == ["baseline"]
    driver.answer(works[0])
    assert [(result.dose, result.late) for result in driver.results] == [(0, False)]


def test_a_failed_base_answer_keeps_its_whole_time_for_another():
    driver = Driver(policy=RouterPolicy(retry_burst=1, retry_share=0.01))
    (first,) = driver.request()
    driver.answer(first, error="out of memory")
    driver.advance(ANSWER_BY_MS + 20)
    assert driver.results == []
    driver.answer(driver.works[1])
    assert [(result.late, result.degraded) for result in driver.results] == [(False, False)]


def test_nobody_is_given_up_while_no_broker_can_be_reached():
    driver = Driver(policy=RouterPolicy(degrade_after_ms=700))
    (base,) = driver.request()
    driver.core.broker_away()
    driver.advance(START_MS + BUDGET_MS + 20_000)
    driver.core.broker_heard(driver.now_ms)
    back_ms = driver.now_ms
    driver.advance(back_ms + 699)
    assert driver.results == []
    driver.answer(base)
    assert [(result.late, result.degraded) for result in driver.results] == [(True, False)]


def test_who_never_answers_after_the_brokers_return_is_given_up_then():
    driver = Driver(policy=RouterPolicy(degrade_after_ms=700))
    driver.request()
    driver.core.broker_away()
    driver.advance(START_MS + BUDGET_MS + 20_000)
    driver.core.broker_heard(driver.now_ms)
    driver.advance(driver.now_ms + 700)
    assert [result.degraded for result in driver.results] == [True]


def test_an_error_instead_of_scores_is_retried_at_once():
    driver = Driver()
    (first,) = driver.request()
    driver.answer(first, error="out of memory")
    second = driver.works[1]
    assert second.partition != first.partition
    driver.answer(second, scores=np.ones(99))
    driver.advance(ANSWER_BY_MS)
    assert driver.results == []
    driver.advance(LAST_MOMENT_MS)
    assert driver.results[0].degraded


def test_the_same_request_twice_has_one_result():
    driver = Driver()
    (sent,) = driver.request()
    assert driver.request() == []
    driver.answer(sent)
    assert driver.request() == []
    assert len(driver.results) == 1
    assert driver.core.num_duplicates == 2
    # The copy behind it is no reason to commit past the open original.
    driver.take(driver.core.commits(driver.now_ms))
    assert driver.commits[-1].offset == 0
    driver.acknowledge(driver.published[0])
    driver.take(driver.core.commits(driver.now_ms))
    assert driver.commits[-1].offset == 3


def test_takeover_skips_what_is_answered_and_gives_the_rest_a_new_deadline():
    driver = Driver(horizon=2, answered=["r0"])
    driver.core.targets.update(target_of(350))
    driver.now_ms = START_MS + 5_000
    assert driver.request(request_of("r0"), append_ms=START_MS) == []
    (sent,) = driver.request(request_of("r1"), append_ms=START_MS)
    assert sent.work.deadline_ms == driver.now_ms + BUDGET_MS
    driver.now_ms += 10
    driver.answer(sent)
    (result,) = driver.results
    assert (result.request_id, result.takeover, result.late) == ("r1", True, True)
    # Behind the horizon all is as ever.
    works = driver.request(request_of("r2", now_ms=driver.now_ms))
    assert [work.route for work in works] == ["baseline", "wide"]
    driver.answer(works[0])
    driver.answer(works[1])
    assert (driver.results[1].takeover, driver.results[1].late) == (False, False)


def test_a_partition_given_up_publishes_what_has_its_base_answer_and_leaves_the_rest():
    driver = Driver()
    driver.core.targets.update(target_of(350))
    base, _ = driver.request(request_of("r1"))
    driver.answer(base)
    driver.request(request_of("r2"))
    partition = base.work.reply_partition
    driver.take(driver.core.surrender(partition, driver.now_ms))
    assert [result.request_id for result in driver.results] == ["r1"]
    driver.acknowledge(driver.published[0])
    driver.take(driver.core.release(partition, driver.now_ms))
    assert driver.commits[-1].offset == 1
    assert partition not in driver.core.partitions
    assert driver.core.num_waiting == 0
    driver.advance(START_MS + 2_000)
    assert driver.totals() == {"offered": 500, "lost": 500}


def test_pressure_holds_back_at_once_and_comes_back_slowly():
    driver = Driver(num_partitions=1)
    driver.core.targets.update(target_of(350))
    base, wide = driver.request(request_of("r0"))
    driver.answer(base)
    driver.answer(wide, sheds=all_shed(wide.work, "deadline"), scores=[], pressure=1.0)
    assert {item.reason for item in driver.results[0].optional} == {"deadline"}
    (base,) = driver.request(request_of("r1"))
    driver.answer(base)
    assert {item.reason for item in driver.results[1].optional} == {"pressure"}

    def admitted_share(start):
        sent = 0
        for number in range(50):
            works = driver.request(request_of(f"{start}-{number}", now_ms=driver.now_ms))
            for work in works:
                driver.answer(work)
                sent += len(work.work.ad_ids) // 8 if work.route == "wide" else 0
        return sent / (50 * 250)

    driver.now_ms += 600
    assert 0.1 < admitted_share("a") < 0.4
    driver.now_ms += 2_000
    assert admitted_share("b") == 1.0


def test_a_route_that_never_answers_is_left():
    driver = Driver(policy=RouterPolicy(probe_interval_ms=10_000))
    driver.core.targets.update(target_of(350))
    for number in range(60):
        for sent in driver.request(request_of(f"r{number}", now_ms=driver.now_ms)):
            if sent.route == "baseline":
                driver.answer(sent)
        driver.advance(driver.now_ms + 50)
    assert {item.reason for item in driver.results[-1].optional} == {"route_silent"}
    assert not any(result.late for result in driver.results)


def test_accounts_close_late_lost_and_shed():
    driver = Driver(policy=RouterPolicy(probe_interval_ms=10_000))
    driver.core.targets.update(target_of(350))
    late, lost, mixed = (driver.request(request_of(f"r{number}")) for number in range(3))
    for base, _ in (late, lost, mixed):
        driver.answer(base)
    driver.answer(mixed[1], sheds=[ChunkShed(chunk=1, reason="value", num_candidates=122, value_micro=1)])
    driver.advance(ANSWER_BY_MS + 1)
    driver.answer(late[1])
    driver.advance(START_MS + BUDGET_MS + 3_000)
    assert len(driver.results) == 3
    assert driver.totals() == {
        "offered": 750,
        "admitted": 128,
        "shed:value": 122,
        "late": 250,
        "lost": 250,
    }
    wide = [route for interval in driver.intervals for route in interval.routes if route.route == "wide"]
    assert sum(route.num_work for route in wide) == 3
    assert sum(route.num_lost for route in wide) == 1
    counts = [interval.latency.count for interval in driver.intervals]
    assert sum(counts) == 3
    assert [interval.seq for interval in driver.intervals] == list(range(len(driver.intervals)))


@pytest.mark.parametrize(
    "answer",
    [
        {"scored": [0, 1], "scores": [1.0]},
        {"scored": [0, 7], "scores": np.ones(128)},
        {"scored": [0, 0], "scores": np.ones(256)},
        {"error": "out of memory"},
        {"scored": [], "scores": []},
    ],
    ids=["too few scores", "no such chunk", "chunk twice", "error", "says nothing"],
)
def test_an_answer_that_does_not_fit_its_work_is_not_merged(answer):
    driver = Driver()
    driver.core.targets.update(target_of(350))
    base, wide = driver.request()
    driver.answer(wide, **answer)
    driver.answer(base)
    (result,) = driver.results
    assert {(item.state, item.reason) for item in result.optional} == {("shed", "error")}
    assert result.num_candidates_ranked == 100
    assert result.routes == ["baseline"]


def test_extras_that_came_back_without_their_base_are_lost_when_the_partition_goes():
    driver = Driver()
    driver.core.targets.update(target_of(350))
    _, wide = driver.request()
    driver.answer(wide)
    driver.take(driver.core.surrender(wide.work.reply_partition, driver.now_ms))
    driver.advance(START_MS + 2_000)
    assert driver.results == []
    assert driver.totals() == {"offered": 250, "lost": 250}


def test_requests_pay_retries_back():
    driver = Driver(policy=RouterPolicy(retry_burst=1, retry_share=0.25))
    for number in range(40):
        # Too slow for more than one to be out, so that only the burst and the share count.
        for sent in driver.request(request_of(f"r{number}", now_ms=driver.now_ms)):
            driver.advance(driver.now_ms + 200)
            driver.answer(sent)
    retries = [sent for sent in driver.works if sent.work.attempt == 1]
    assert 8 <= len(retries) <= 11
