"""A mixed replica: how long base work waits, with ten times as much optional work on top of it and without.

One replica process serves ``baseline,wide`` with the baseline bundle. It is given base work at a steady rate all the
time, and in every other turn optional work as well: ten times as many candidates. What base work may wait for is one
optional chunk, as no answer begins before the call in flight has ended; how long these took is in the replica's trace.
Times are wall-clock times, from handing the work to the client to having the answer.
"""

import json

import numpy as np

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan, alternate
from benchmarks.stage import Stage, on_kafka
from benchmarks.work_sender import WorkSender
from ranking.models.load import BASELINE_WORLD_BUNDLE

NAME = "mixed"

NUM_BASE, NUM_OPTIONAL = 100, 1_000
WORK_PER_S = 40
TURN_S, TURN_S_QUICK = 5.0, 2.0


def measure(plan: Plan) -> list[Measurement]:
    """p50 and p99 of base answers with optional load beside those without, in ms, and the time of optional calls."""
    if plan.tiny:
        return []
    with on_kafka() as stage:
        return _measure(stage, plan)


def _measure(stage: Stage, plan: Plan) -> list[Measurement]:
    trace = stage.folder / "trace"
    prefix, bundle = stage.namespace.prefix, str(BASELINE_WORLD_BUNDLE)
    stage.start("ranker", "benchmarks.replica", prefix, bundle, "mixed", "baseline,wide", "0", str(trace))
    sender = WorkSender(stage, num_base=NUM_BASE, num_optional=NUM_OPTIONAL)
    sender.await_first("baseline", "wide")
    turn_s = plan.choose(TURN_S, TURN_S_QUICK, 0.0)
    loaded_ms: list[list[float]] = []
    quiet_ms: list[list[float]] = []

    def p99_ms(turns_ms: list[list[float]], *, with_optional: bool) -> float:
        turns_ms.append(sender.run(turn_s, work_per_s=WORK_PER_S, optional_per_work=int(with_optional)))
        return float(np.percentile(turns_ms[-1], 99))

    p99s_ms, quiet_p99s_ms = alternate(
        lambda: p99_ms(loaded_ms, with_optional=True),
        lambda: p99_ms(quiet_ms, with_optional=False),
        num_turns=plan.num_turns,
        name=NAME,
    )
    calls = [json.loads(line) for line in trace.read_text().splitlines()]
    calls_ms = [(call["end_ns"] - call["looked_ns"]) / 1e6 for call in calls]
    what = f"base work in a mixed replica with {NUM_OPTIONAL // NUM_BASE} times as much optional work"
    return [
        Measurement(
            name=f"{what}, p50",
            unit="ms",
            values=[float(np.median(turn)) for turn in loaded_ms],
            reference="without optional work",
            reference_values=[float(np.median(turn)) for turn in quiet_ms],
        ),
        Measurement(
            name=f"{what}, p99",
            unit="ms",
            values=p99s_ms,
            reference="without optional work",
            reference_values=quiet_p99s_ms,
            goal="one optional call more",
        ),
        Measurement(name="optional calls in it, p50", unit="ms", values=[float(np.median(calls_ms))]),
        Measurement(name="optional calls in it, p99", unit="ms", values=[float(np.percentile(calls_ms, 99))]),
    ]
