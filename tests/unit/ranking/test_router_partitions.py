"""Choice of partitions, retries and the overdue threshold, apart from the core."""

import random
from collections import Counter

import pytest

from ranking.router.partitions import PartitionBook
from ranking.router.policy import RouterPolicy
from ranking.router.recent import RecentIds
from ranking.router.retries import RecentCount, RetryBudget
from ranking.router.tail import LearnedTail, overdue_after_ms


def book_of(num_partitions=4, *, probe_interval_ms=1_000.0):
    return PartitionBook(num_partitions, rng=random.Random(1), probe_interval_ms=probe_interval_ms)


def test_the_less_loaded_of_two_is_chosen():
    book = book_of(2)
    for number in range(10):
        book.sent((f"r{number}", "baseline", 0), 0, 0.0)
    assert {book.choose(0.0) for _ in range(20)} == {1}
    for number in range(10):
        book.answered((f"r{number}", "baseline", 0), partition=0, owner="a")
    assert {book.choose(0.0) for _ in range(20)} == {0, 1}


def test_load_spreads_evenly():
    book = book_of(8)
    for number in range(800):
        partition = book.choose(0.0)
        book.sent((f"r{number}", "baseline", 0), partition, 0.0)
    loads = [book.num_outstanding(number) for number in range(8)]
    assert max(loads) - min(loads) <= 4


def test_weight_turns_away_from_a_pressed_replica():
    book = book_of(2)
    assert Counter(book.choose(0.0, weight=lambda n: 100.0 if n == 0 else 1.0) for _ in range(50)) == {1: 50}


def test_an_answer_from_elsewhere_says_nothing_of_our_work():
    book = book_of()
    book.sent(("r", "baseline", 0), 1, 5.0)
    assert book.answered(("r", "baseline", 0), partition=2, owner="b") is None
    assert book.answered(("r", "baseline", 0), partition=99, owner="b") is None
    assert book.num_outstanding(1) == 1
    assert book.answered(("r", "baseline", 0), partition=1, owner="a") == 5.0
    assert (book.owner(1), book.owner(2)) == ("a", "b")


def test_suspects_are_probed_no_more_than_allowed():
    book = book_of(2, probe_interval_ms=100.0)
    book.sent(("r", "baseline", 0), 0, 0.0)
    assert book.suspect(("r", "baseline", 0))
    tried = []
    for now_ms in range(0, 1000, 10):
        partition = book.choose(float(now_ms))
        book.sent((f"p{now_ms}", "baseline", 0), partition, float(now_ms))
        if partition == 0:
            tried.append(now_ms)
    assert tried == list(range(100, 1000, 100))


def test_all_suspect_leaves_nothing_to_choose_but_base_must_go_somewhere():
    book = book_of(2)
    for number in range(2):
        book.sent((f"r{number}", "baseline", 0), number, 0.0)
        book.suspect((f"r{number}", "baseline", 0))
    assert book.choose(1.0) is None
    assert book.choose_any() in (0, 1)
    assert book.choose_elsewhere(0) == 1
    assert book_of(1).choose_elsewhere(0) is None


def test_a_retry_prefers_another_owner_even_one_under_suspicion_last():
    book = book_of(3)
    for number, owner in enumerate(("a", "a", "b")):
        book.answered((f"r{number}", "baseline", 0), partition=number, owner=owner)
    assert {book.choose_elsewhere(0) for _ in range(20)} == {2}
    book.sent(("s", "baseline", 0), 2, 0.0)
    book.suspect(("s", "baseline", 0))
    # A trusted partition of the same owner is better than one that is known to be silent.
    assert {book.choose_elsewhere(0) for _ in range(20)} == {1}


def test_budget_holds_a_share_and_a_burst():
    budget = RetryBudget(share=0.125, burst=5, max_overdue_ms=1_000.0)
    assert [budget.take(0.0, overdue_ms=100.0) for _ in range(7)] == [True] * 5 + [False] * 2
    for number in range(8):
        budget.request(number * 1_000.0)
    assert [budget.take(8_000.0, overdue_ms=100.0) for _ in range(2)] == [True, False]


def test_budget_holds_what_is_out_when_a_replica_dies_at_any_rate():
    budget = RetryBudget(share=0.1, burst=5, max_overdue_ms=1_000.0)
    for number in range(20_000):
        budget.request(number * 0.5)
    taken = sum(budget.take(10_000.0, overdue_ms=100.0) for _ in range(1_000))
    # 2000 requests/s, 100 ms until they are overdue: of 400, no dead replica can owe more.
    assert 400 <= taken <= 440


def test_recent_events_are_counted_and_older_ones_forgotten():
    recent = RecentCount(horizon_ms=1_000.0)
    assert recent.since(0.0) == 0
    for number in range(10_000):
        recent.count(number * 1.0)
    for span_ms in (1.0, 35.0, 1_000.0):
        assert span_ms <= recent.since(10_000.0 - span_ms) <= span_ms + 20
    assert recent.since(0.0) <= 1_020
    recent.count(20_000.0)
    assert recent.since(19_000.0) == 1


def test_overdue_is_learned_within_its_bounds():
    bounds = {"factor": 1.5, "low_share": 0.15, "high_share": 0.4}
    assert overdue_after_ms(None, 300.0, **bounds) == 120.0
    assert overdue_after_ms(5.0, 300.0, **bounds) == 45.0
    assert overdue_after_ms(60.0, 300.0, **bounds) == 90.0
    assert overdue_after_ms(1_000.0, 300.0, **bounds) == 120.0


def test_tail_is_of_recent_answers_only():
    tail = LearnedTail(0.99, generation_ms=1_000.0, min_samples=50, refresh_ms=10.0)
    for number in range(49):
        tail.record(10.0, float(number))
    assert tail.value(50.0) is None
    tail.record(-1.0, 50.0)
    assert tail.value(100.0) == pytest.approx(10.0, rel=0.02)
    for number in range(200):
        tail.record(100.0, 1_500.0 + number)
    assert tail.value(1_800.0) == pytest.approx(100.0, rel=0.02)
    for number in range(200):
        tail.record(2.0, 2_600.0 + number)
        tail.record(2.0, 3_700.0 + number)
    assert tail.value(4_000.0) == pytest.approx(2.0, rel=0.02)


def test_recent_ids_are_forgotten_by_time_and_by_number():
    recent = RecentIds(horizon_ms=100.0, max_ids=2)
    assert recent.note("a", 0.0)
    assert not recent.note("a", 99.0)
    assert recent.note("a", 100.0)
    assert recent.note("b", 100.0)
    assert recent.note("c", 100.0)
    assert recent.note("a", 100.0)


def test_answered_ids_count_until_the_log_was_read_to_where_it_ended():
    recent = RecentIds(["a"], horizon_ms=100.0)
    assert not recent.note("a", 1_000_000.0)
    recent.caught_up(1_000_000.0)
    assert not recent.note("a", 1_000_050.0)
    assert recent.note("a", 1_000_200.0)


@pytest.mark.parametrize(
    "changes", [{"chunk_size": 0}, {"retry_share": 1.0}, {"overdue_low_share": 0.5}, {"pressure_knee": 1.0}]
)
def test_a_policy_that_makes_no_sense_is_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        RouterPolicy(**changes)


def test_whoever_fails_at_once_is_a_suspect_until_an_answer_of_use() -> None:
    book = PartitionBook(2, rng=random.Random(1), probe_interval_ms=1_000.0)
    book.sent(("a", "baseline", 0), 0, 0.0)
    assert book.answered(("a", "baseline", 0), partition=0, owner="bad", is_usable=False) == 0.0
    assert book.suspects == {0}
    assert book.num_outstanding(0) == 0
    book.sent(("b", "baseline", 0), 0, 5.0)
    assert book.answered(("b", "baseline", 0), partition=0, owner="bad", is_usable=False) == 5.0
    assert book.suspects == {0}
    book.sent(("c", "baseline", 0), 0, 9.0)
    assert book.answered(("c", "baseline", 0), partition=0, owner="good") == 9.0
    assert book.suspects == frozenset()
