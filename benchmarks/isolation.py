"""Isolation: what saturated opportunistic neighbours on the same host cost the base answers of a dedicated replica.

One dedicated replica is given base work at a steady rate all the time. Beside it stands an opportunistic replica for
every core, at the lowest CPU priority; in every other block they are given several times what they can score, in the
others nothing. Nothing is pinned to a core: priorities, and the wish of the kernel to keep them, are all there is.
Times are wall-clock times, from handing the work to the client to having the answer.
"""

import os

import numpy as np

from benchmarks.bootstrap import ratio_of_percentiles
from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.stage import Stage, on_kafka
from benchmarks.work_sender import WorkSender
from ranking.consumer.priority import LOWEST_NICE
from ranking.models.load import BASELINE_WORLD_BUNDLE

NAME = "isolation"

NUM_BASE, NUM_OPTIONAL = 100, 2_000
WORK_PER_S = 40
# Candidates for the neighbours, a second: 800,000, more than two fast cores score.
OPTIONAL_PER_WORK = 10
NUM_BLOCKS, NUM_BLOCKS_QUICK = 20, 6
BLOCK_S, BLOCK_S_QUICK = 3.0, 1.5
MOST = 1.05


def measure(plan: Plan) -> list[Measurement]:
    """p99 of base answers with saturated neighbours beside that with idle ones, ms, and the ratio with its interval."""
    if plan.tiny:
        return []
    with on_kafka() as stage:
        return _measure(stage, plan)


def _measure(stage: Stage, plan: Plan) -> list[Measurement]:
    num_neighbours = len(os.sched_getaffinity(0))
    prefix, bundle = stage.namespace.prefix, str(BASELINE_WORLD_BUNDLE)
    stage.start("dedicated", "benchmarks.replica", prefix, bundle, "dedicated", "baseline", "0")
    for number in range(num_neighbours):
        name = f"neighbour-{number}"
        stage.start(name, "benchmarks.replica", prefix, bundle, name, "wide", str(LOWEST_NICE))
    sender = WorkSender(stage, num_base=NUM_BASE, num_optional=NUM_OPTIONAL)
    sender.await_first("baseline", "wide")
    block_s = plan.choose(BLOCK_S, BLOCK_S_QUICK, 0.0)
    loaded_ms: list[list[float]] = []
    quiet_ms: list[list[float]] = []

    def p99_ms(blocks_ms: list[list[float]], optional_per_work: int) -> float:
        blocks_ms.append(sender.run(block_s, work_per_s=WORK_PER_S, optional_per_work=optional_per_work))
        return float(np.percentile(blocks_ms[-1], 99))

    p99s_ms, quiet_p99s_ms = alternate(
        lambda: p99_ms(loaded_ms, OPTIONAL_PER_WORK),
        lambda: p99_ms(quiet_ms, 0),
        num_turns=plan.choose(NUM_BLOCKS, NUM_BLOCKS_QUICK, 0),
        name=NAME,
    )
    ratio = ratio_of_percentiles(loaded_ms, quiet_ms, percentile=99)
    what = (
        f"base answers beside {num_neighbours} saturated opportunistic replicas at nice {LOWEST_NICE}, nothing pinned"
    )
    verdict = "missed" if ratio.low > MOST else "met"
    return [
        Measurement(
            name=f"{what}, p99 of a block",
            unit="ms",
            values=p99s_ms,
            reference="beside idle ones",
            reference_values=quiet_p99s_ms,
        ),
        Measurement(
            name=f"{what}, p99 of all blocks over that beside idle ones, 95 % interval",
            unit="ratio",
            values=list(ratio),
            goal=f"its lower end at most {MOST:g}: {verdict}",
        ),
    ]
