"""The plan as a knapsack: how much of the most value that any plan could keep is kept, and that nothing is inverted."""

import dataclasses
import random
import statistics
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.consumer.costs import Rates
from ranking.consumer.planner import Plan, PlanSettings, plan_batch
from ranking.consumer.task import Task
from tests.unit.ranking.consumer_fakes import chunk_refs, optional_task

RATES = Rates(candidate_ns=1_000.0, request_ns=20_000.0)
NUM_BATCHES, NUM_REQUESTS, NUM_CHUNKS = 1_000, 64, 8


class Item(NamedTuple):
    """An optional chunk: what it is worth, what it costs."""

    value: int
    cost_ns: float


def cost_ns(task: Task, chunk: int) -> float:
    return RATES.candidate_ns * task.chunk_num_candidates(chunk) + RATES.request_ns / task.num_chunks


def item(ref: tuple[Task, int]) -> Item:
    task, chunk = ref
    return Item(task.work.chunk_values_micro[chunk], cost_ns(task, chunk))


def fractional_optimum(items: Iterable[Item], budget_ns: float) -> float:
    """Value of the best plan that may also take parts of items: an upper bound of every plan's."""
    value = 0.0
    for worth, cost in sorted(items, key=lambda found: -found.value / found.cost_ns):
        taken_ns = min(cost, budget_ns)
        value += worth * taken_ns / cost
        budget_ns -= taken_ns
    return value


def density(found: Item) -> float:
    return found.value / found.cost_ns


def plan(tasks: list[Task], budget_ns: int) -> Plan:
    return plan_batch(tasks, now_ns=0, rates=RATES, settings=PlanSettings(budget_ns=budget_ns))


EXTRAS = st.builds(
    lambda number, values, chunk_size, answer_by_ms: optional_task(
        f"r{number:03}", values=values, chunk_size=chunk_size, answer_by_ms=answer_by_ms
    ),
    st.integers(0, 999),
    st.lists(st.integers(0, 1_000), min_size=1, max_size=8),
    st.sampled_from([1, 64, 500]),
    # Too late, too tight for any chunk, or later than any budget ends.
    st.sampled_from([-1.0, 0.001, 1_000.0, 1_000.0]),
)
UPGRADES = st.builds(
    lambda number, value, num_candidates, answer_by_ms: optional_task(
        f"u{number:03}",
        values=[value],
        chunk_size=num_candidates,
        answer_by_ms=answer_by_ms,
        route="powerful",
        lever="sbm",
    ),
    st.integers(0, 999),
    st.integers(0, 10_000),
    st.integers(1, 1_000),
    st.sampled_from([-1.0, 0.001, 1_000.0, 1_000.0]),
)
BATCH = st.lists(st.one_of(EXTRAS, UPGRADES), min_size=1, max_size=24)


@given(BATCH, st.floats(0.01, 1.0))
def test_kept_and_the_first_refused_are_worth_the_fractional_optimum(tasks: list[Task], share: float) -> None:
    items = [item(ref) for ref in chunk_refs(tasks) if cost_ns(*ref) <= ref[0].answer_by_ns]
    budget_ns = max(1, int(share * sum(found.cost_ns for found in items)))
    planned = plan(tasks, budget_ns)
    for task, chunk, reason in planned.sheds:
        assert (reason == "value") == (cost_ns(task, chunk) <= task.answer_by_ns)
    kept = sum(item(ref).value for ref in planned.kept)
    refused = [item((task, chunk)) for task, chunk, reason in planned.sheds if reason == "value"]
    first_refused = refused[0].value if refused else 0
    assert kept + first_refused >= fractional_optimum(items, budget_ns) * (1 - 1e-9)


@given(BATCH, st.floats(0.01, 1.0))
def test_nothing_is_kept_that_is_worth_less_per_cost_than_what_was_dropped(tasks: list[Task], share: float) -> None:
    planned = plan(tasks, max(1, int(share * sum(cost_ns(*ref) for ref in chunk_refs(tasks)))))
    dropped = [density(item((task, chunk))) for task, chunk, reason in planned.sheds if reason == "value"]
    assert all(density(item(ref)) >= max(dropped) for ref in planned.kept) if dropped else True


# Requests in three sizes of chunk, to be given their values batch by batch.
BLANKS = [
    optional_task(f"r{number:02}", values=[0] * NUM_CHUNKS, chunk_size=32 << number % 3, answer_by_ms=1_000)
    for number in range(NUM_REQUESTS)
]


def a_batch(draws: random.Random) -> list[Task]:
    """Requests of very different worth, each chunk worth less than the one before."""
    tasks = []
    for blank in BLANKS:
        worth = 1e6 * draws.lognormvariate(0.0, 1.0)
        values = sorted(
            (int(worth * draws.uniform(0.5, 1.0) * 0.8**chunk) for chunk in range(NUM_CHUNKS)), reverse=True
        )
        tasks.append(dataclasses.replace(blank, work=msgspec.structs.replace(blank.work, chunk_values_micro=values)))
    return tasks


@pytest.mark.parametrize(("wrong_by", "wanted"), [(0.0, 0.97), (0.5, 0.90)])
def test_the_value_kept_is_close_to_the_most_that_any_plan_could_keep(wrong_by: float, wanted: float) -> None:
    """``wrong_by``: each true cost lies anywhere within that share of what was predicted, and time is really spent."""
    draws = random.Random(7)
    shares = []
    for _ in range(NUM_BATCHES):
        tasks = a_batch(draws)
        items = {ref: item(ref) for ref in chunk_refs(tasks)}
        if wrong_by:
            factors = {ref: draws.uniform(1.0 - wrong_by, 1.0 + wrong_by) for ref in items}
            items = {ref: Item(found.value, found.cost_ns * factors[ref]) for ref, found in items.items()}
        budget_ns = int(draws.uniform(0.2, 0.8) * sum(found.cost_ns for found in items.values()))
        kept, left_ns = 0, float(budget_ns)
        for ref in plan(tasks, budget_ns).kept:
            left_ns -= items[ref].cost_ns
            if left_ns < -1.0:
                break
            kept += items[ref].value
        shares.append(kept / fractional_optimum(items.values(), budget_ns))
    print(
        f"\n{NUM_BATCHES} batches of {NUM_REQUESTS} x {NUM_CHUNKS}, costs wrong by up to {wrong_by:.0%}: "
        f"mean {statistics.mean(shares):.2%} of the fractional optimum, least {min(shares):.2%}"
    )
    assert statistics.mean(shares) >= wanted
