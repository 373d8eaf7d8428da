"""A slow spell teaches a replica that work is dear; once it is over, optional work comes back by itself."""

from dataclasses import replace

import pytest

from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.scoring import Device
from schemas.records import RankingAnswer
from tests.unit.ranking.consumer_fakes import MS, FakeClock, FakeScorer, optional_task

SIZE = 256
EVERY_MS = 50


@pytest.mark.parametrize(("call_ms", "times_slower", "slow_s"), [(20, 4, 1), (20, 4, 3), (5, 20, 5)])
def test_after_a_slow_spell_everything_is_scored_again(call_ms: int, times_slower: int, slow_s: int) -> None:
    clock = FakeClock()
    normal_ns = call_ms * MS // SIZE
    scorer = FakeScorer(clock, fixed_ns=0, per_candidate_ns=normal_ns)
    answers: list[RankingAnswer] = []
    replica = Replica(
        ReplicaEnds(
            device=Device(scorer=scorer),
            permit=Permit(None, clock_ns=clock),
            clock_ns=clock,
            send=lambda _, answer: answers.append(answer),
        ),
        costs=CostBook(CostPrior(fixed_ns=0.0, per_candidate_ns=float(normal_ns))),
        settings=ReplicaSettings(
            identity=Identity(ranker_id="r", epoch_ms=0),
            cell="us-east",
            routes=("powerful",),
            plan=PlanSettings(call_size=SIZE),
        ),
    )
    for number in range(60 * 1_000 // EVERY_MS):
        arrived_ns = number * EVERY_MS * MS
        clock.now_ns = max(clock.now_ns, arrived_ns)
        is_slow = 10 * 1_000 * MS <= clock.now_ns < (10 + slow_s) * 1_000 * MS
        scorer.per_candidate_ns = normal_ns * (times_slower if is_slow else 1)
        upgrade = optional_task(f"o{number}", values=[1_000], chunk_size=SIZE, route="powerful", lever="sbm")
        replica.run([replace(upgrade, arrived_ns=arrived_ns, taken_ns=clock.now_ns, answer_by_ns=arrived_ns + 60 * MS)])
    is_scored = [bool(answer.scored_chunks) for answer in answers]
    per_s = 1_000 // EVERY_MS
    assert not all(is_scored[: 30 * per_s]), "there was no slow spell"
    assert all(is_scored[30 * per_s :])
