"""One of two dedicated rankers is killed: all that it owed is answered in time through partitions of the other."""

import heapq
from itertools import count, pairwise

import pytest

from tests.unit.ranking.router_driver import START_MS, Driver, request_of

NUM_WORK_PARTITIONS = 8
SERVICE_MS = 8.0


def steady(rate_per_s, *, until_ms, from_ms=0.0):
    gap_ms = 1_000.0 / rate_per_s
    return [from_ms + number * gap_ms for number in range(round((until_ms - from_ms) / gap_ms))]


class Rankers:
    """Two rankers with half of the partitions each, one of which dies at a time, for good: it answers nothing more."""

    def __init__(self, *, death_ms):
        self.driver = Driver(num_partitions=NUM_WORK_PARTITIONS)
        self._death_ms = START_MS + death_ms
        self._due = []
        self._order = count()
        self._num_seen = 0
        self.num_owed = 0

    def play(self, arrivals_ms):
        for number, (at_ms, _) in enumerate(pairwise([*arrivals_ms, None])):
            self._run_to(START_MS + at_ms)
            self.driver.request(request_of(f"r{number}", user_id=f"u{number % 97}", now_ms=self.driver.now_ms))
            self._note()
        self._run_to(self.driver.now_ms + 7_000)
        assert len(self.driver.results) == len(arrivals_ms)
        return self.driver.results

    def _note(self):
        works = self.driver.works
        for sent in works[self._num_seen :]:
            answer_ms = self.driver.now_ms + SERVICE_MS
            if sent.partition < NUM_WORK_PARTITIONS // 2 and answer_ms >= self._death_ms:
                self.num_owed += 1
            else:
                heapq.heappush(self._due, (answer_ms, next(self._order), sent))
        self._num_seen = len(works)

    def _run_to(self, to_ms):
        driver = self.driver
        while True:
            answer_ms = self._due[0][0] if self._due else to_ms
            if min(answer_ms, driver.core.next_due_ms) >= to_ms:
                break
            if answer_ms <= driver.core.next_due_ms:
                driver.advance(answer_ms)
                sent = heapq.heappop(self._due)[2]
                driver.answer(sent, ranker=f"ranker-{sent.partition * 2 // NUM_WORK_PARTITIONS}")
            else:
                driver.advance(driver.core.next_due_ms)
            self._note()
        driver.advance(to_ms)


TRAFFIC = {
    "20 a second": (steady(20, until_ms=6_000), 3_000.0),
    "200 a second": (steady(200, until_ms=3_000), 1_500.0),
    "1000 a second": (steady(1_000, until_ms=1_600), 1_000.0),
    "before anything was learned": (steady(400, until_ms=600), 30.0),
    "a jump just before": ([*steady(10, until_ms=3_000), *steady(1_000, from_ms=3_000, until_ms=3_500)], 3_150.0),
    "silence just after": ([*steady(10, until_ms=3_000), *steady(4_000, from_ms=3_000, until_ms=3_100)], 3_060.0),
}


@pytest.mark.parametrize("name", TRAFFIC)
def test_what_a_dead_ranker_owed_is_answered_in_time_by_the_other(name):
    arrivals_ms, death_ms = TRAFFIC[name]
    rankers = Rankers(death_ms=death_ms)
    results = rankers.play(arrivals_ms)
    assert rankers.num_owed > 1
    assert [result.request_id for result in results if result.late or result.degraded] == []
    # Not a storm: what the dead one owed, and no more than a few that were only slow.
    retries = sum(sent.work.attempt == 1 for sent in rankers.driver.works)
    assert retries <= rankers.num_owed
