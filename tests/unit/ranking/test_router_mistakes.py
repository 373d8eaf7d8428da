"""What a router does with requests that cannot be ranked: a caller's mistakes, and what cannot be believed."""

import numpy as np
import pytest

from ranking.callers_mistake import answer_error
from schemas.errors import RecordError
from schemas.framing import MAX_RECORD_BYTES, decode_as, encode
from schemas.records import RankingWork
from tests.unit.ranking.router_driver import BUDGET_MS, START_MS, Driver, all_shed, request_of, target_of


def ids(result):
    return np.frombuffer(result.ad_ids, dtype="<i8").tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_candidates": 0, "num_base": 0}, "no candidates"),
        ({"num_base": 0}, "num_base_candidates is 0"),
        ({"num_base": 401}, "exceeds"),
        ({"num_candidates": 4097}, "at most 4096"),
        ({"deadline_ms": int(START_MS)}, "not after the intake"),
        ({"intake_ms": 10, "deadline_ms": 20}, "had passed"),
        ({"num_results": 0}, "num_results"),
        ({"deadline_ms": int(START_MS) + 40_000}, "away"),
        ({"advertiser_segment": "s" * 256}, "too long"),
        ({"user_features": bytes(4 * 16_385)}, "user_features holds 16385 values, at most 16384"),
        ({"history_ids": bytes(8 * 65_537)}, "history_ids holds 65537 ids, at most 65536"),
    ],
)
def test_a_mistake_of_the_caller_is_a_result_that_says_so(changes, words):
    driver = Driver()
    assert driver.request(**changes) == []
    (result,) = driver.results
    assert result.status == "error"
    assert words in result.error
    driver.acknowledge(driver.published[0])
    driver.take(driver.core.commits(driver.now_ms))
    assert driver.commits[-1].offset == 1


@pytest.mark.parametrize("num_base", [1, 4_096], ids=["mostly extras", "all base"])
def test_work_of_whatever_is_taken_in_can_be_read_by_a_replica(num_base):
    """The largest request that is no mistake, with names in the widest letters."""
    driver = Driver()
    driver.core.targets.update(target_of(4_000))
    wide_name = "\U0001f9ed" * 256
    request = request_of(
        wide_name,
        user_id=wide_name,
        num_candidates=4_096,
        num_base=num_base,
        user_features=bytes(4 * 16_384),
        history_ids=np.full(65_536, 2**62, dtype="<i8").tobytes(),
        platform=wide_name,
    )
    assert len(encode(request)) <= MAX_RECORD_BYTES
    works = driver.request(request)
    assert works[0].route == "baseline"
    for sent in works:
        decode_as(encode(sent.work), RankingWork)


def test_a_mistake_that_a_replica_finds_is_a_result_that_says_so_and_costs_no_retry():
    driver = Driver()
    driver.core.targets.update(target_of(350))
    base, wide = driver.request()
    driver.answer(base, error=answer_error("user_features holds 3 values, m1 takes 16"), scores=[], scored=[])
    (result,) = driver.results
    assert (result.status, result.error) == ("error", "user_features holds 3 values, m1 takes 16")
    assert (result.degraded, result.late, ids(result)) == (False, False, [])
    assert [sent.work.attempt for sent in driver.on("baseline")] == [0]
    driver.answer(wide, sheds=all_shed(wide.work, "error"), scores=[])
    driver.advance(START_MS + 5_000)
    assert len(driver.results) == 1
    assert driver.totals() == {"offered": 250, "shed:error": 250}
    assert sum(interval.num_errors for interval in driver.intervals) == 1
    assert sum(interval.num_base_late for interval in driver.intervals) == 0


def test_a_mistake_that_only_one_replica_sees_is_none():
    """Models of two versions may differ in what they take of a user; whoever can rank the request decides."""
    driver = Driver()
    (first,) = driver.request()
    driver.advance(START_MS + 0.4 * BUDGET_MS)
    _, second = driver.works
    driver.answer(first, error=answer_error("user_features"), scores=[], scored=[])
    assert driver.results == []
    driver.answer(second)
    (result,) = driver.results
    assert (result.status, result.error, len(ids(result))) == ("ok", "", 10)


@pytest.mark.parametrize(
    ("request_", "key", "partition", "reason"),
    [
        (RecordError("truncated", "cut"), None, None, "truncated"),
        (request_of(), b"u2", None, "key_mismatch"),
        (request_of(), None, 3, "wrong_partition"),
        (request_of(intake_ms=int(START_MS) + 5_001), None, None, "future_event"),
        (request_of(bids=np.full(400, np.nan, dtype="<f4").tobytes()), None, None, "invalid_field"),
        (request_of(bids=np.full(400, -1, dtype="<f4").tobytes()), None, None, "invalid_field"),
        (request_of(user_features=np.full(4, np.inf, dtype="<f4").tobytes()), None, None, "invalid_field"),
    ],
)
def test_what_cannot_be_believed_is_refused_and_does_not_hold_up_the_log(request_, key, partition, reason):
    driver = Driver()
    assert driver.request(request_, key=key, partition=partition) == []
    (refused,) = driver.refused
    assert refused.error.reason == reason
    driver.take(driver.core.commits(driver.now_ms))
    assert [commit.offset for commit in driver.commits] == [0]
    driver.core.published(refused.partition, refused.offset, driver.now_ms)
    driver.take(driver.core.commits(driver.now_ms))
    assert driver.commits[-1].offset == 1
