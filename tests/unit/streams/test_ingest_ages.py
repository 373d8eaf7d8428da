"""Ages of what is idle and of what was taken back, window by window."""

import math
import random
from typing import Any

import pytest

from schemas.age_classes import AGE_CLASSES_S
from schemas.records import Offer, PoolWindow
from streams.control.ledger.pool_ledger import updated
from streams.control.ledger.survival import survives_share
from streams.ingest.bounds import MAX_COUNT, OTHER
from streams.ingest.capacity import MAX_STEPS, CapacityCell
from streams.ingest.pools import MAX_POOLS
from tests.unit.streams.ingest_makers import LIMITS, capacity_of, event, offer

WINDOW_MS, TTL_MS = 10_000, 30_000
# A window that begins here; offers of every age fit before it.
FIRST = 100_000
START_MS = FIRST * WINDOW_MS


class Cell:
    """A cell whose windows are closed one after another from FIRST on."""

    def __init__(self, *, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._window = START_MS // window_ms
        self._cell = CapacityCell(window_ms=window_ms, ttl_ms=TTL_MS)
        self._seq = 0

    def say(self, *offers: Offer, at_s: float, host: str = "h-1", **changes: Any) -> None:
        """One host's record, ``at_s`` after the start, in the window that is open."""
        self._seq += 1
        at_ms = START_MS + round(at_s * 1_000)
        record = event(host=host, seq=self._seq, at_ms=at_ms, **{"offers": [*offers]} | changes)
        self._cell.accept(record, window=self._window, append_ms=at_ms, late=False)

    def num_steps_held(self) -> int:
        return sum(len(steps) for opened in self._cell._open.values() for steps in opened.steps.values())

    def close(self) -> dict[str, PoolWindow]:
        self._window += 1
        return {pool.accelerator: pool for pool in capacity_of(self._cell.close(self._window - 1, LIMITS)).pools}


def since(at_s: float, units: float = 1.0, **changes: Any) -> Offer:
    """Units offered since ``at_s`` after the start, or before it."""
    return offer(units=units, offered_since_ms=START_MS + round(at_s * 1_000), **changes)


def units(pool: PoolWindow) -> dict[int, float]:
    return {aged.from_age_s: aged.units_micro / 1e6 for aged in pool.ages if aged.units_micro}


def taken(pool: PoolWindow) -> dict[int, float]:
    return {aged.from_age_s: aged.taken_micro / 1e6 for aged in pool.ages if aged.taken_micro}


def test_an_offer_grows_older_though_its_host_only_repeats_itself() -> None:
    cell = Cell()
    same = [since(5.001, 1.0), since(-60.0, 2.0)]
    seen = []
    for number in range(13):
        cell.say(*same, at_s=10 * number + 6)
        pool = cell.close()["h200"]
        seen.append(units(pool))
        assert pool.age_unit_ms == 4_999 + 10_000 * number + 2 * (70_000 + 10_000 * number)
        assert not taken(pool)
    # At the ends of windows, 10 s, 20 s...: one is 4.999 s old and then ten more each time, two are 70 s old.
    assert seen[0] == {0: 1.0, 60: 2.0}
    assert seen[1] == {10: 1.0, 60: 2.0}
    assert seen[3] == {30: 1.0, 60: 2.0}
    assert seen[5] == {30: 1.0, 120: 2.0}
    assert seen[12] == {120: 3.0}


@pytest.mark.parametrize("window_ms", [2_000, 10_000, 4_321])
@pytest.mark.parametrize("from_age_s", AGE_CLASSES_S[1:])
def test_a_class_begins_at_its_bound_to_the_millisecond(window_ms: int, from_age_s: int) -> None:
    end_ms = (START_MS // window_ms + 3) * window_ms
    for age_ms, is_in in ((from_age_s * 1_000 - 1, False), (from_age_s * 1_000, True)):
        cell = Cell(window_ms=window_ms)
        cell.say(offer(offered_since_ms=end_ms - age_ms), at_s=0.0)
        cell.close()
        cell.close()
        pool = cell.close()["h200"]
        assert (from_age_s in units(pool)) is is_in
        assert pool.age_unit_ms == age_ms


def test_only_what_is_usable_has_an_age() -> None:
    cell = Cell()
    cell.say(since(-50.0, 3.0, unusable="memory"), since(-50.0, 1.5), at_s=0.0)
    pool = cell.close()["h200"]
    assert (units(pool), pool.age_unit_ms) == ({60: 1.5}, 90_000)


def test_an_offer_without_a_time_or_from_the_future_is_new() -> None:
    cell = Cell()
    cell.say(offer(units=1.0), since(25.0, 2.0), at_s=0.0)
    for number, (of_age_0, age_unit_ms) in enumerate([(3.0, 0), (3.0, 0), (3.0, 10_000), (1.0, 30_000)]):
        pool = cell.close()["h200"]
        assert (units(pool)[0], pool.age_unit_ms) == (of_age_0, age_unit_ms), number
        cell.say(offer(units=1.0), since(25.0, 2.0), at_s=10 * number + 10)


def test_what_a_reclaim_or_an_update_takes_is_of_the_age_it_had_then() -> None:
    cell = Cell()
    cell.say(since(-100.0, 4.0), since(-5.0, 8.0, accelerator="a100"), at_s=0.0)
    cell.close()
    cell.say(since(-100.0, 1.0), since(-5.0, 8.0, accelerator="a100"), at_s=19.999, kind="update")
    cell.say(since(-100.0, 1.0), at_s=19.9999, kind="reclaim")
    pools = cell.close()
    assert (taken(pools["h200"]), taken(pools["a100"])) == ({60: 3.0}, {10: 8.0})
    assert (units(pools["h200"]), units(pools["a100"])) == ({120: 1.0}, {})
    assert not any(taken(pool) for pool in cell.close().values())


def test_what_stays_is_not_taken_whatever_else_changed() -> None:
    cell = Cell()
    cell.say(since(-5.0, 2.0, provider="own"), since(-5.0, 1.0, idle_cause="not_ported"), at_s=0.0)
    cell.close()
    cell.say(since(-5.0, 3.5, provider="cloud", reclaim_at_ms=7), since(3.0, 1.0), at_s=12.0, kind="update")
    assert not taken(cell.close()["h200"])


def test_what_becomes_unusable_is_lost_and_what_is_offered_anew_was_taken_back() -> None:
    cell = Cell()
    cell.say(since(-5.0, 2.0), since(-15.0, 1.0, accelerator="a100"), at_s=0.0)
    cell.close()
    cell.say(since(-5.0, 2.0, unusable="memory"), since(13.0, 1.0, accelerator="a100"), at_s=14.0)
    pools = cell.close()
    assert (taken(pools["h200"]), taken(pools["a100"])) == ({10: 2.0}, {10: 1.0})


def test_an_offer_that_came_and_went_between_two_windows_ends_is_told() -> None:
    cell = Cell()
    cell.say(at_s=0.0)
    cell.close()
    cell.say(since(10.5, 2.0), at_s=10.5, kind="offer")
    cell.say(at_s=17.0, kind="reclaim")
    cell.say(since(18.0, 2.0), at_s=18.0, kind="offer")
    pool = cell.close()["h200"]
    assert (taken(pool), units(pool)) == ({0: 2.0}, {0: 2.0})


def test_an_offer_that_was_gone_for_a_moment_is_told_although_its_host_says_the_same_again() -> None:
    cell, same = Cell(), [offer(units=2.0)]
    cell.say(at_s=0.0, offers=same)
    cell.close()
    cell.say(at_s=12.0, kind="reclaim")
    # Records that say the same may share one list of offers.
    cell.say(at_s=15.0, offers=same)
    assert taken(cell.close()["h200"]) == {0: 2.0}


def test_a_host_that_falls_silent_takes_everything_with_it() -> None:
    cell = Cell()
    cell.say(since(-95.0, 2.0), since(-95.0, 5.0, unusable="memory"), since(1.0, 1.0, accelerator="cpu"), at_s=5.0)
    for _ in range(3):
        assert not any(pool.num_hosts_silent for pool in cell.close().values())
    pools = cell.close()
    # At the end of the fourth window, of an age of 135 s and 39 s.
    assert (taken(pools["h200"]), taken(pools["cpu"])) == ({120: 2.0}, {30: 1.0})
    h200 = pools["h200"]
    assert (h200.num_hosts, h200.num_hosts_silent, h200.silent_units_micro) == (0, 1, 2_000_000)
    assert cell.close() == {}


def test_steps_beyond_the_most_that_are_told_cost_no_memory_and_the_end_is_told() -> None:
    cell = Cell()
    cell.say(since(-5.0, 100.0), at_s=0.0)
    cell.close()
    # One unit less each time, and all that is left in the end.
    for number in range(1, 2 * MAX_STEPS):
        cell.say(since(-5.0, max(100.0 - number, 1.0)), at_s=10.0 + number / 1_000, kind="update")
    pool = cell.close()["h200"]
    assert (taken(pool), units(pool)) == ({10: 99.0}, {10: 1.0})
    for _ in range(3 * MAX_STEPS):
        cell.say(since(-5.0), at_s=25.0, kind="update")
    assert cell.num_steps_held() <= MAX_STEPS + 1


def test_huge_and_many_pools_stay_within_the_bounds_of_a_record() -> None:
    cell = Cell()
    for number in range(MAX_POOLS + 10):
        cell.say(since(-50.0, 1e12, accelerator=f"kind-{number:03d}"), at_s=1.0, host=f"h-{number}")
    for number in range(12):
        cell.say(since(-50.0, 1e12, accelerator="kind-000"), at_s=1.0, host=f"g-{number}")
    pools = cell.close()
    assert pools["kind-000"].ages[0].units_micro == MAX_COUNT
    assert len(pools) == MAX_POOLS + 1
    assert pools[OTHER].ages[0].units_micro == MAX_COUNT
    for _ in range(3):
        pools = cell.close()
    assert pools["kind-000"].silent_units_micro == pools["kind-000"].ages[0].taken_micro == MAX_COUNT
    assert pools[OTHER].num_hosts_silent == 10
    assert cell.close() == {}


def test_sums_are_exact_where_floats_are_not() -> None:
    """Small and large quantities, and products with times that no float holds, taken away in another order."""
    cell, rng = Cell(), random.Random(7)
    hosts = [(rng.randrange(1, 900_000_000), rng.choice((100_000, 123_456_700_000))) for _ in range(500)]
    for number, (before_ms, units_micro) in enumerate(hosts):
        cell.say(since(-before_ms / 1_000, units_micro / 1e6), at_s=1.0, host=f"h-{number}")
    pool = cell.close()["h200"]
    assert pool.age_unit_ms == sum(micro * (10_000 + before_ms) for before_ms, micro in hosts) // 1_000_000
    assert sum(aged.units_micro for aged in pool.ages) == pool.units_micro == sum(micro for _, micro in hosts)
    gone = set(rng.sample(range(500), 400))
    for number in sorted(gone, key=lambda number: hosts[number]):
        cell.say(at_s=11.0, host=f"h-{number}", kind="reclaim")
    pool = cell.close()["h200"]
    left = [host for number, host in enumerate(hosts) if number not in gone]
    assert pool.age_unit_ms == sum(micro * (20_000 + before_ms) for before_ms, micro in left) // 1_000_000
    assert sum(aged.taken_micro for aged in pool.ages) == sum(hosts[number][1] for number in gone)


def test_lifetimes_of_a_window_s_length_are_found_by_the_ledger() -> None:
    """From the records of a fleet to its survival: most offers end within a window or two of their beginning."""
    mean_s, num_hosts, num_windows = 12.0, 60, 40
    rng = random.Random(5)
    said: list[tuple[float, int, str, bool]] = []
    for number in range(num_hosts):
        at_s = rng.expovariate(1 / mean_s)
        while at_s < num_windows * 10:
            until_s = at_s + rng.expovariate(1 / mean_s)
            said += [(at_s, number, "offer", True), (until_s, number, "reclaim", False)]
            at_s = until_s + rng.expovariate(1 / mean_s)
    said.sort()
    cell, ledger, last = Cell(), None, dict[int, Offer | None]()
    for window in range(num_windows):
        for number in range(num_hosts):
            held = last.get(number)
            cell.say(*([held] if held is not None else []), at_s=10 * window, host=f"h-{number}")
        while said and said[0][0] < 10 * (window + 1):
            at_s, number, kind, is_idle = said.pop(0)
            last[number] = held = since(at_s) if is_idle else None
            cell.say(*([held] if held is not None else []), at_s=at_s, host=f"h-{number}", kind=kind)
        ledger = updated(ledger, cell.close()["h200"], window_ms=WINDOW_MS)
    assert ledger is not None
    assert survives_share(ledger, 10.0) == pytest.approx(math.exp(-10.0 / mean_s), abs=0.04)
