"""Closed gates: a replica that says so is left for those that are open, and found again when it opens."""

import pytest

from ranking.router.policy import RouterPolicy
from tests.unit.ranking.router_driver import Driver, all_shed, request_of, target_of

PROBE_MS = RouterPolicy().gate_probe_interval_ms
NUM_REPLICAS = 2


class Pool:
    """Two replicas with half of the partitions of one route each, that answer at once."""

    def __init__(self, route, *, other_share=0.0, candidates=100):
        self.driver = Driver(policy=RouterPolicy(probe_interval_ms=60_000))
        self.driver.core.targets.update(target_of(candidates, other_share=other_share))
        self.route = route
        self.closed = set()
        self.owner = {number: number * NUM_REPLICAS // 4 for number in range(4)}
        self.num_asked = 0
        # All partitions are known by their owners.
        for _ in range(60):
            self.ask()

    def ask(self, *, after_ms=5.0, reason="gate_closed"):
        """One request; returns the replica that its optional work went to, None where it went nowhere."""
        driver = self.driver
        driver.advance(driver.now_ms + after_ms)
        self.num_asked += 1
        works = driver.request(request_of(f"r{self.num_asked}", now_ms=driver.now_ms))
        asked = None
        for sent in works:
            if sent.route == "baseline":
                driver.answer(sent)
                continue
            asked = self.owner[sent.partition]
            if asked in self.closed:
                driver.answer(
                    sent, ranker=f"replica-{asked}", sheds=all_shed(sent.work, reason), scores=[], pressure=1.0
                )
            else:
                driver.answer(sent, ranker=f"replica-{asked}")
        return asked

    def reasons(self, num):
        """Reasons of the sheds in the last results."""
        return {item.reason for result in self.driver.results[-num:] for item in result.optional if item.reason}


@pytest.fixture(params=["wide", "powerful"])
def pool(request):
    if request.param == "wide":
        return Pool("wide", candidates=350)
    return Pool("powerful", other_share=1.0)


@pytest.mark.parametrize("reason", ["gate_closed", "draining", "model_error", "out_of_memory"])
def test_a_closed_replica_is_left_at_its_first_word_and_the_open_one_gets_everything(pool, reason):
    pool.closed = {0}
    asked = [pool.ask(reason=reason) for _ in range(200)]
    first = asked.index(0)
    # One second: what follows the first refusal is a probe after half of it, and everything else goes where it is open.
    assert first < 20
    assert asked[first + 1 :].count(0) == 1
    assert asked.count(1) == 200 - asked.count(0)
    assert pool.reasons(200) == {reason}
    refused = [result for result in pool.driver.results[-200:] if any(item.reason for item in result.optional)]
    assert len(refused) == asked.count(0)


def test_where_all_are_closed_nothing_is_sent_but_rare_probes(pool):
    pool.closed = {0, 1}
    asked = [pool.ask() for _ in range(400)]
    # The first word of each replica, and tries after 0.5 and 1.5 of two seconds.
    assert asked.count(None) >= 400 - NUM_REPLICAS * 3
    assert pool.reasons(100) == {"gate_closed"}
    # A minute: the tries become rare, but they go on.
    tries = 400 - [pool.ask(after_ms=150.0) for _ in range(400)].count(None)
    assert NUM_REPLICAS * 60_000 / (8 * PROBE_MS) - 4 <= tries <= NUM_REPLICAS * (60_000 / (8 * PROBE_MS) + 2)


def test_a_gate_that_opens_is_found_by_the_next_probe_and_takes_its_part_again(pool):
    pool.closed = {0}
    # Half a second is just over: it was asked once more.
    for _ in range(120):
        pool.ask()
    pool.closed = set()
    asked = [pool.ask() for _ in range(800)]
    assert asked.index(0) <= 2 * PROBE_MS / 5.0
    assert asked.count(None) == 0
    assert 0.3 < asked[asked.index(0) :].count(0) / len(asked[asked.index(0) :]) < 0.7


def test_partitions_that_went_to_another_replica_are_used_again(pool):
    pool.closed = {0}
    for _ in range(100):
        pool.ask()
    # It has left; the other has taken its partitions over, and answers the probes.
    pool.owner = dict.fromkeys(range(4), 1)
    asked = [pool.ask(after_ms=PROBE_MS / 10) for _ in range(60)]
    assert asked == [1] * 60
    used = {sent.partition for sent in pool.driver.on(pool.route)[-20:]}
    assert used == {0, 1, 2, 3}
    # Nothing is remembered of it: a route that falls silent is silent, not closed.
    for number in range(60):
        driver = pool.driver
        driver.advance(driver.now_ms + 50)
        driver.answer(driver.request(request_of(f"s{number}", now_ms=driver.now_ms))[0])
    assert pool.reasons(1) == {"route_silent"}


def test_where_every_model_fails_nothing_is_sent_but_rare_probes_and_the_reason_is_theirs(pool):
    pool.closed = {0, 1}
    asked = [pool.ask(reason="out_of_memory") for _ in range(400)]
    assert asked.count(None) >= 400 - NUM_REPLICAS * 3
    # Unsent it has failed on no memory of its own.
    assert pool.reasons(20) == {"model_error"}
