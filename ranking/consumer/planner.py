"""The plan of one micro-batch: base work first, always; then optional chunks, most value per cost first. Pure.

Chunks are taken in the order of value per predicted cost (ties by request id, attempt and place) and run in that order,
so that whatever interrupts a batch, what was done is the most valuable part. A chunk is kept where

    finish = end of base work + costs of the kept chunks before it + its own cost  <=  limit
    limit  = min(its answer-by time, end of base work + the batch's budget)

and once a chunk was dropped, no later one with the same or an earlier limit is kept: under one shared limit the kept
chunks are a prefix of the order. Chunks that could not be in time even if they ran first leave before that.

A chunk is a part of the extra candidates of a request, or a whole upgrade to a stronger model; it costs its candidates
and an equal share of what encoding its user costs. Greedy by value per cost is within one item of the best there is
(Dantzig, "Discrete-Variable Extremum Problems", 1957): under one shared limit,

    value kept + value of the first chunk dropped for value  >=  fractional optimum  >=  any plan

Shape legend: M optional chunks of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ranking.consumer.costs import Rates
from ranking.consumer.task import Task

# A deadline that passed; one that cannot be met; dropped in favour of more valuable work.
PlanReason = Literal["expired", "deadline", "value"]

ChunkRef = tuple[Task, int]


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """``call_size`` candidates go into one scoring call; optional work of one batch takes ``budget_ns`` at most."""

    call_size: int = 256
    budget_ns: int = 50_000_000

    def __post_init__(self) -> None:
        if self.call_size <= 0 or self.budget_ns <= 0:
            raise ValueError(f"call_size and budget_ns must be positive: {self}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run and in which order, and which optional chunks to drop; together every chunk exactly once.

    The first ``num_in_time`` of ``base`` can still be answered in time; the others are late, and ranked all the same.
    """

    base: list[Task]
    num_in_time: int
    kept: list[ChunkRef]
    sheds: list[tuple[Task, int, PlanReason]]


def order_base(tasks: Sequence[Task], now_ns: int) -> tuple[list[Task], int]:
    """Base work in the order to run: earliest answer-by time first, but what is late already after the rest."""
    ordered = sorted(tasks, key=lambda task: (task.answer_by_ns <= now_ns, task.answer_by_ns, task.work.request_id))
    return ordered, sum(task.answer_by_ns > now_ns for task in tasks)


def plan_batch(tasks: Sequence[Task], *, now_ns: int, rates: Rates, settings: PlanSettings) -> Plan:
    """Plan a micro-batch; ``rates`` are the predicted costs of the model that will score it."""
    base, num_in_time = order_base([task for task in tasks if task.is_base], now_ns)
    base_end_ns = now_ns + sum(rates.work_ns(task.num_candidates) for task in base)
    optional = [task for task in tasks if not task.is_base]
    kept: list[ChunkRef] = []
    sheds: list[tuple[Task, int, PlanReason]] = []
    if optional:
        _plan_optional(optional, now_ns, base_end_ns, rates, settings.budget_ns, kept, sheds)
    return Plan(base=base, num_in_time=num_in_time, kept=kept, sheds=sheds)


def _plan_optional(
    optional: list[Task],
    now_ns: int,
    base_end_ns: float,
    rates: Rates,
    budget_ns: int,
    kept: list[ChunkRef],
    sheds: list[tuple[Task, int, PlanReason]],
) -> None:
    # In the order of the stable id, so that a stable sort by value per cost alone settles ties.
    optional.sort(key=lambda task: (task.work.request_id, task.work.attempt))
    refs: list[ChunkRef] = []
    values: list[int] = []
    sizes: list[int] = []
    shares: list[float] = []
    for task in optional:
        work = task.work
        num_chunks = task.num_chunks
        refs += [(task, chunk) for chunk in range(num_chunks)]
        values += work.chunk_values_micro
        sizes += [work.chunk_size] * (num_chunks - 1)
        sizes.append(task.num_candidates - work.chunk_size * (num_chunks - 1))
        shares += [1.0 / num_chunks] * num_chunks
    costs_M = np.array(sizes, dtype=np.float64) * rates.candidate_ns + np.array(shares) * rates.request_ns
    order = np.argsort(-np.array(values, dtype=np.float64) / costs_M, kind="stable").tolist()
    costs: list[float] = costs_M.tolist()

    horizon_ns = base_end_ns + budget_ns
    finish_ns = base_end_ns
    cut_ns = -1.0
    for position in order:
        task, chunk = ref = refs[position]
        answer_by_ns = task.answer_by_ns
        cost_ns = costs[position]
        if base_end_ns + cost_ns > answer_by_ns:
            sheds.append((task, chunk, "expired" if answer_by_ns <= now_ns else "deadline"))
            continue
        limit_ns = answer_by_ns if answer_by_ns < horizon_ns else horizon_ns
        if limit_ns <= cut_ns:
            sheds.append((task, chunk, "value"))
        elif finish_ns + cost_ns > limit_ns:
            cut_ns = limit_ns
            sheds.append((task, chunk, "value"))
        else:
            finish_ns += cost_ns
            kept.append(ref)
