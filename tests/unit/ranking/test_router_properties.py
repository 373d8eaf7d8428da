"""What must hold of the router whatever happens: exact accounts, one result each, baseline work of its own."""

from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ranking.router.events import SendWork
from ranking.router.policy import RouterPolicy
from schemas.records import ChunkShed, RankingWork
from tests.unit.ranking.router_driver import BUDGET_MS, Driver, all_shed, request_of, target_of

# One event: what happens, how long after the last one, and a number to choose with.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(
                    "request",
                    "request",
                    "wide",
                    "wide",
                    "base",
                    "base",
                    "partly",
                    "closed",
                    "garbled",
                    "revoke",
                    "target",
                ),
                *("powerful", "powerful"),
            ]
        ),
        st.integers(0, 120),
        st.integers(0, 10_000),
    ),
    max_size=80,
)


def play(events: Sequence[tuple[str, int, int]]) -> tuple[Driver, set[str]]:
    """Drive a router through events and to its end; returns it and the ids sent."""
    driver = Driver(policy=RouterPolicy(degrade_after_ms=400, probe_interval_ms=200))
    sent_ids: set[str] = set()
    for what, wait_ms, number in events:
        driver.advance(driver.now_ms + wait_ms)
        waiting = {route: driver.on(route) for route in ("baseline", "wide", "powerful")}
        if what == "request":
            request_id = f"r{len(sent_ids)}"
            sent_ids.add(request_id)
            driver.request(request_of(request_id, user_id=f"u{number % 7}", now_ms=driver.now_ms))
        elif what == "target":
            valid_until_ms = driver.now_ms + number % 2_000
            driver.core.targets.update(
                target_of(
                    100 + number % 400,
                    end_ms=driver.now_ms,
                    valid_until_ms=valid_until_ms,
                    other_share=(number % 5) / 4,
                )
            )
        elif what == "revoke":
            partition = number % 4
            driver.take(driver.core.surrender(partition, driver.now_ms))
        elif what == "base" and waiting["baseline"]:
            driver.answer(waiting["baseline"][number % len(waiting["baseline"])])
        elif what not in ("base", "powerful") and waiting["wide"]:
            _answer_wide(driver, waiting["wide"][number % len(waiting["wide"])], what, number)
        elif what == "powerful" and waiting["powerful"]:
            how = ("wide", "closed", "garbled")[number % 3]
            _answer_wide(driver, waiting["powerful"][number % len(waiting["powerful"])], how, number)
    driver.advance(driver.now_ms + 5_000)
    return driver, sent_ids


def _answer_wide(driver: Driver, sent: SendWork, what: str, number: int) -> None:
    if what == "wide":
        driver.answer(sent, pressure=(number % 11) / 10)
    elif what == "closed":
        driver.answer(sent, sheds=all_shed(sent.work, "gate_closed"), scores=[])
    elif what == "partly":
        driver.answer(sent, sheds=[ChunkShed(chunk=0, reason="value", num_candidates=1, value_micro=1)])
    else:
        driver.answer(sent, scored=[number % 5], scores=[1.0])


@settings(max_examples=150)
@given(events=EVENTS)
def test_every_optional_item_is_accounted_for_once(events):
    driver, sent_ids = play(events)
    counts = Counter(result.request_id for result in driver.results)
    assert all(count == 1 for count in counts.values())
    assert set(counts) <= sent_ids

    totals = Counter(driver.totals())
    ends = sum(units for name, units in totals.items() if name != "offered")
    assert totals["offered"] == ends

    # What results say at their time must agree with what the accounts say in the end.
    in_results: Counter[str] = Counter()
    for result in driver.results:
        assert sum(item.units for item in result.optional if item.lever == "rma") == result.dose
        assert sum(item.units for item in result.optional if item.lever == "sbm") == result.upgrade_assigned
        assert (result.flipped is None) == ("powerful" not in result.routes)
        for item in result.optional:
            in_results[item.state if item.state != "shed" else f"shed:{item.reason}"] += item.units
    assert totals["admitted"] == in_results["admitted"]
    for name in set(totals) | set(in_results):
        if name.startswith("shed:"):
            assert totals[name] >= in_results[name]
    assigned = sum(item.units for result in driver.results for item in result.optional)
    surrendered = totals["offered"] - assigned
    assert surrendered >= 0
    if not any(what == "revoke" for what, _, _ in events):
        assert set(counts) == sent_ids
        assert surrendered == 0
    assert driver.core.num_waiting == 0
    assert driver.core._open == {}


SCRIPT = st.lists(
    st.tuples(
        st.integers(1, 60),  # ms to the next request
        st.one_of(st.none(), st.integers(1, 2 * BUDGET_MS)),  # ms from base work to its answer; None: never
        st.sampled_from(["wide", "closed", "partly", "garbled", "silent"]),
        st.integers(1, 300),  # ms from wide work to its answer
        st.integers(0, 10),  # pressure in tenths
    ),
    min_size=1,
    max_size=40,
)


class Script:
    """Plays a script: one request per line, base work and wide work answered when the line says."""

    def __init__(self, lines, *, with_extras: bool) -> None:
        self._lines = lines
        self.driver = Driver(policy=RouterPolicy(degrade_after_ms=400))
        if with_extras:
            self.driver.core.targets.update(target_of(350, other_share=0.5))
        self.base_sent: list[tuple[float, int, RankingWork]] = []
        # Answers on their way: (time, base before wide, line, attempt, work).
        self._due: list[tuple[float, int, int, int, SendWork]] = []

    def play(self) -> list[tuple[float, int, RankingWork]]:
        """Base work sent: (time, partition, record)."""
        driver = self.driver
        for number, (gap_ms, *_) in enumerate(self._lines):
            self._run_to(driver.now_ms + gap_ms)
            self._note(driver.request(request_of(f"r{number}", user_id=f"u{number % 5}", now_ms=driver.now_ms)))
        self._run_to(driver.now_ms + 5_000)
        assert len(driver.results) == len(self._lines)
        return self.base_sent

    def _note(self, works: Sequence[SendWork]) -> None:
        for sent in works:
            number = int(sent.work.request_id[1:])
            _, base_ms, wide, wide_ms, _ = self._lines[number]
            is_base = sent.route == "baseline"
            if is_base:
                self.base_sent.append((self.driver.now_ms, sent.partition, sent.work))
            after_ms = base_ms if is_base else None if wide == "silent" else wide_ms
            if after_ms is not None:
                self._due.append((self.driver.now_ms + after_ms, not is_base, number, sent.work.attempt, sent))

    def _run_to(self, to_ms: float) -> None:
        driver = self.driver
        while True:
            self._due.sort(key=lambda entry: entry[:4])
            answer_ms = self._due[0][0] if self._due else to_ms
            next_ms = min(answer_ms, driver.core.next_due_ms)
            if next_ms >= to_ms:
                break
            known = len(driver.works)
            driver.now_ms = max(driver.now_ms, next_ms)
            if answer_ms <= next_ms:
                self._answer(*self._due.pop(0)[2:])
            else:
                driver.take(driver.core.tick(driver.now_ms))
            self._note(driver.works[known:])
        driver.now_ms = to_ms

    def _answer(self, number: int, _: int, sent: SendWork) -> None:
        if sent.route == "baseline":
            self.driver.answer(sent)
        else:
            _answer_wide(self.driver, sent, self._lines[number][2], self._lines[number][4])


@settings(max_examples=100)
@given(script=SCRIPT)
def test_baseline_work_is_the_same_with_and_without_optional_work(script):
    without = Script(script, with_extras=False).play()
    with_extras = Script(script, with_extras=True).play()
    # Stronger than the contract asks: the same times, partitions and retries too, as base answers are the same.
    assert [(time_ms, partition) for time_ms, partition, _ in with_extras] == [
        (time_ms, partition) for time_ms, partition, _ in without
    ]
    assert [msgspec.to_builtins(work) for *_, work in with_extras] == [
        msgspec.to_builtins(work) for *_, work in without
    ]
    first = [work for *_, work in without if work.attempt == 0]
    assert [work.request_id for work in first] == [f"r{number}" for number in range(len(script))]
    assert all(work.attempt <= 1 and work.lever is None and not any(work.chunk_values_micro) for *_, work in without)
