"""What a saturated replica spends on everything but scoring: decoding, planning, answers, Kafka, and waiting for them.

A replica is given more base work than it can do for a while, all at once. Its answers say how long each was scored;
what is left of the time between the first answer and the last, by the broker's clock, went elsewhere.
"""

from benchmarks.measurement import Measurement
from benchmarks.plan import Plan
from benchmarks.stage import Stage, on_kafka
from benchmarks.work_sender import WorkSender
from ops.telemetry.progress import progress
from ranking.models.load import BASELINE_WORLD_BUNDLE

NAME = "overhead"

NUM_CANDIDATES = 512
NUM_WORK, NUM_WORK_QUICK = 2_000, 600
DEADLINE_MS = 120_000


def measure(plan: Plan) -> list[Measurement]:
    """Share of the time that is not scoring, in percent, of each turn."""
    if plan.tiny:
        return []
    with on_kafka() as stage:
        return _measure(stage, plan)


def _measure(stage: Stage, plan: Plan) -> list[Measurement]:
    stage.start(
        *("ranker", "benchmarks.replica", stage.namespace.prefix, str(BASELINE_WORLD_BUNDLE)),
        *("saturated", "baseline", "0"),
    )
    sender = WorkSender(stage, num_base=NUM_CANDIDATES, num_optional=NUM_CANDIDATES)
    sender.await_first("baseline")
    shares: list[float] = []
    with progress(NAME, total=plan.num_turns) as advance:
        for _ in range(plan.num_turns):
            shares.append(100.0 * _overhead(sender, plan.choose(NUM_WORK, NUM_WORK_QUICK, 0)))
            advance(1)
    name = f"time of a saturated replica not spent on scoring, work of {NUM_CANDIDATES} candidates"
    return [Measurement(name=name, unit="%", values=shares, goal="at most 15")]


def _overhead(sender: WorkSender, num_work: int) -> float:
    names = {sender.send("baseline", deadline_ms=DEADLINE_MS)[0] for _ in range(num_work)}
    sender.await_answers(names, limit_s=DEADLINE_MS / 1e3)
    answers = sorted((sender.answered[name] for name in names), key=lambda answer: answer.append_ms)
    # The first was scored before the time begins; its batch mates are within the error of a few in a thousand.
    busy_ms = sum(answer.busy_us for answer in answers[1:]) / 1e3
    return 1.0 - busy_ms / (answers[-1].append_ms - answers[0].append_ms)
