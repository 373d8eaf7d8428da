"""Planning of one micro-batch: what ordering by value per cost adds to every request.

A batch is 64 requests of 8 optional chunks, with values in no order, deadlines apart, and a budget for three fifths of
them: all three ends of a chunk (kept, dropped by value, dropped by deadline) occur.
"""

import time

import numpy as np

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan
from ops.telemetry.progress import progress
from ranking.consumer.costs import Rates
from ranking.consumer.planner import PlanSettings, plan_batch
from ranking.consumer.task import Task
from schemas.records import RankingWork

NAME = "planning"

NUM_REQUESTS = 64
NUM_CHUNKS = 8
CHUNK_SIZE = 64
NUM_PLANS, NUM_PLANS_QUICK, NUM_PLANS_TINY = 1_000, 200, 2

_MS = 1_000_000
# Predicted cost of a candidate and of a user: the whole batch would take 33 ms.
RATES = Rates(1_000.0, 5_000.0)
SETTINGS = PlanSettings(budget_ns=20 * _MS)


def measure(plan: Plan) -> list[Measurement]:
    """p50 and p99 of the CPU time of a plan, in microseconds per request of its batch, of each turn."""
    tasks = [_task(number) for number in range(NUM_REQUESTS)]
    planned = plan_batch(tasks, now_ns=0, rates=RATES, settings=SETTINGS)
    assert planned.kept
    assert {reason for _, _, reason in planned.sheds} == {"value", "deadline"}
    num_plans = plan.choose(NUM_PLANS, NUM_PLANS_QUICK, NUM_PLANS_TINY)
    p50s_us: list[float] = []
    p99s_us: list[float] = []
    with progress("planning", total=plan.num_turns) as advance:
        for _ in range(plan.num_turns):
            p50_us, p99_us = np.percentile(_times_us(tasks, num_plans), [50, 99])
            p50s_us.append(float(p50_us))
            p99s_us.append(float(p99_us))
            advance(1)
    what = f"planning, {NUM_REQUESTS} requests of {NUM_CHUNKS} chunks"
    return [
        Measurement(name=f"{what}, p50", unit="CPU µs/request", values=p50s_us, goal="at most 10"),
        Measurement(name=f"{what}, p99", unit="CPU µs/request", values=p99s_us, goal="at most 50"),
    ]


def _times_us(tasks: list[Task], num_plans: int) -> list[float]:
    times_us = []
    for _ in range(num_plans):
        start_ns = time.process_time_ns()
        plan_batch(tasks, now_ns=0, rates=RATES, settings=SETTINGS)
        times_us.append((time.process_time_ns() - start_ns) / 1e3 / len(tasks))
    return times_us


def _task(number: int) -> Task:
    num_candidates = NUM_CHUNKS * CHUNK_SIZE
    # Steps that share no factor with the moduli: every value and deadline occurs, in no order. From 0.03 ms, less than
    # a chunk takes, to 40 ms, more than the budget.
    answer_by_ms = 0.03 + number * 29 % NUM_REQUESTS * 40 / NUM_REQUESTS
    work = RankingWork(
        request_id=f"request-{number:06}",
        attempt=0,
        route="wide",
        cell="us-east",
        lever="rma",
        router="router-1",
        reply_partition=0,
        intake_ms=0,
        deadline_ms=100,
        user_id=f"user-{number}",
        user_features=np.zeros(16, dtype="<f4").tobytes(),
        history_ids=b"",
        ad_ids=np.arange(num_candidates, dtype="<i8").tobytes(),
        bids=np.ones(num_candidates, dtype="<f4").tobytes(),
        retrieval_scores=np.zeros(num_candidates, dtype="<f4").tobytes(),
        first_position=0,
        chunk_size=CHUNK_SIZE,
        chunk_values_micro=[(number * 7 + chunk * 13) % 97 for chunk in range(NUM_CHUNKS)],
    )
    return Task(
        work=work,
        partition=0,
        arrived_ns=0,
        taken_ns=0,
        answer_by_ns=int(answer_by_ms * _MS),
        num_candidates=num_candidates,
        num_chunks=NUM_CHUNKS,
    )
