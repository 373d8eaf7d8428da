"""The plan of a micro-batch: base work first, optional chunks a prefix in value per cost, every chunk exactly once."""

import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking.consumer.costs import Rates
from ranking.consumer.planner import PlanSettings, order_base, plan_batch
from tests.unit.ranking.consumer_fakes import MS, base_task, chunk_refs, optional_task

RATE_NS = 1_000.0
SETTINGS = PlanSettings(call_size=256, budget_ns=20 * MS)


def plan(tasks, *, now_ns=0, settings=SETTINGS):
    return plan_batch(tasks, now_ns=now_ns, rates=Rates(RATE_NS), settings=settings)


OPTIONAL = st.builds(
    lambda number, values, chunk_size, rest, answer_by_ms: optional_task(
        f"r{number:03}",
        values=values,
        chunk_size=chunk_size,
        num_candidates=chunk_size * (len(values) - 1) + min(rest, chunk_size),
        answer_by_ms=answer_by_ms,
    ),
    st.integers(0, 999),
    st.lists(st.integers(0, 50), min_size=1, max_size=8),
    st.sampled_from([32, 64, 1_000]),
    st.integers(1, 1_000),
    st.sampled_from([-5, 0, 1, 3, 10, 200]),
)
BASE = st.builds(
    lambda number, num_candidates, answer_by_ms: base_task(
        f"b{number:03}", num_candidates=num_candidates, answer_by_ms=answer_by_ms
    ),
    st.integers(0, 999),
    st.integers(1, 4_096),
    st.sampled_from([-5, 1, 100]),
)
BATCH = st.tuples(st.lists(OPTIONAL, max_size=12), st.lists(BASE, max_size=6)).flatmap(
    lambda parts: st.permutations([*parts[0], *parts[1]])
)


@given(BATCH)
def test_every_task_and_chunk_is_in_the_plan_exactly_once(tasks):
    planned = plan(tasks)
    assert sorted(map(id, planned.base)) == sorted(id(task) for task in tasks if task.is_base)
    ends = [(id(task), chunk) for task, chunk in planned.kept]
    ends += [(id(task), chunk) for task, chunk, _ in planned.sheds]
    assert sorted(ends) == sorted((id(task), chunk) for task, chunk in chunk_refs(tasks))


@given(BATCH)
def test_base_work_is_the_same_whatever_optional_work_stands_beside_it(tasks):
    alone = plan([task for task in tasks if task.is_base])
    mixed = plan(tasks)
    assert list(map(id, alone.base)) == list(map(id, mixed.base))
    assert alone.num_in_time == mixed.num_in_time


@given(BATCH)
def test_late_base_work_comes_after_the_rest_and_is_never_dropped(tasks):
    planned = plan(tasks)
    in_time, late = planned.base[: planned.num_in_time], planned.base[planned.num_in_time :]
    assert all(task.answer_by_ns > 0 for task in in_time)
    assert all(task.answer_by_ns <= 0 for task in late)
    assert [t.answer_by_ns for t in in_time] == sorted(t.answer_by_ns for t in in_time)


@given(BATCH)
def test_the_kept_chunks_are_a_prefix_in_value_per_cost(tasks):
    planned = plan(tasks)
    base_end_ns = RATE_NS * sum(task.num_candidates for task in tasks if task.is_base)
    horizon_ns = base_end_ns + SETTINGS.budget_ns

    def key(ref):
        task, chunk = ref
        per_cost = task.work.chunk_values_micro[chunk] / (task.chunk_num_candidates(chunk) * RATE_NS)
        return (-per_cost, task.work.request_id, task.work.attempt)

    keys = [key(ref) for ref in planned.kept]
    assert keys == sorted(keys)
    for task, chunk, reason in planned.sheds:
        if reason != "value":
            continue
        limit_ns = min(task.answer_by_ns, horizon_ns)
        for kept_task, kept_chunk in planned.kept:
            if key((kept_task, kept_chunk)) > key((task, chunk)):
                # Only one that has more time may be kept in spite of a lower value.
                assert min(kept_task.answer_by_ns, horizon_ns) > limit_ns


@given(BATCH)
def test_what_is_kept_is_predicted_to_be_in_time_and_within_the_budget(tasks):
    planned = plan(tasks)
    finish_ns = base_end_ns = RATE_NS * sum(task.num_candidates for task in tasks if task.is_base)
    for task, chunk in planned.kept:
        finish_ns += RATE_NS * task.chunk_num_candidates(chunk)
        assert finish_ns <= task.answer_by_ns
        assert finish_ns <= base_end_ns + SETTINGS.budget_ns
    for task, chunk, reason in planned.sheds:
        alone_ns = base_end_ns + RATE_NS * task.chunk_num_candidates(chunk)
        if reason == "value":
            assert alone_ns <= task.answer_by_ns
        else:
            assert alone_ns > task.answer_by_ns
            assert (reason == "expired") == (task.answer_by_ns <= 0)


@given(st.permutations([optional_task(f"r{n}", values=[5, 5], answer_by_ms=100) for n in range(6)]))
def test_ties_are_broken_by_the_stable_id(tasks):
    kept = [(task.work.request_id, chunk) for task, chunk in plan(tasks).kept]
    assert kept == [(f"r{n}", chunk) for n in range(6) for chunk in range(2)]


def test_lower_values_fall_first_under_the_budget():
    rich = optional_task("rich", values=[9, 8, 7], answer_by_ms=100)
    poor = optional_task("poor", values=[3, 2, 1], answer_by_ms=100)
    budget = PlanSettings(call_size=256, budget_ns=int(64 * RATE_NS * 4))
    planned = plan([poor, rich], settings=budget)
    assert [(task.work.request_id, chunk) for task, chunk in planned.kept] == [
        ("rich", 0),
        ("rich", 1),
        ("rich", 2),
        ("poor", 0),
    ]
    assert [(task.work.request_id, chunk, reason) for task, chunk, reason in planned.sheds] == [
        ("poor", 1, "value"),
        ("poor", 2, "value"),
    ]


def test_a_valuable_chunk_that_cannot_be_in_time_takes_no_room():
    hopeless = optional_task("a", values=[100], chunk_size=1_000, answer_by_ms=0.5)
    humble = optional_task("b", values=[1], answer_by_ms=0.5)
    planned = plan([hopeless, humble])
    assert [task.work.request_id for task, _ in planned.kept] == ["b"]
    assert [(task.work.request_id, reason) for task, _, reason in planned.sheds] == [("a", "deadline")]


def test_base_order_is_by_deadline_with_late_ones_last():
    tasks = [base_task(name, answer_by_ms=ms) for name, ms in [("late", -1), ("far", 9), ("near", 2)]]
    ordered, num_in_time = order_base(tasks, 0)
    assert [task.work.request_id for task in ordered] == ["near", "far", "late"]
    assert num_in_time == 2


@pytest.mark.parametrize("field", ["call_size", "budget_ns"])
def test_impossible_settings_are_refused(field):
    with pytest.raises(ValueError, match="positive"):
        PlanSettings(**{field: 0})


def test_planning_takes_no_time_that_a_request_would_feel():
    """64 requests of 8 chunks; the bound is ten times what is aimed at, as test machines are shared."""
    tasks = [
        optional_task(f"r{n:02}", values=[(n * 7 + c * 13) % 97 for c in range(8)], answer_by_ms=40) for n in range(64)
    ]
    times_us = []
    for _ in range(100):
        start_ns = time.process_time_ns()
        plan(tasks)
        times_us.append((time.process_time_ns() - start_ns) / 1e3 / len(tasks))
    print(f"planning: p50 {statistics.median(times_us):.2f} us per request, min {min(times_us):.2f}")
    assert statistics.median(times_us) < 100.0
