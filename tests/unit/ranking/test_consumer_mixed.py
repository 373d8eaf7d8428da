"""A mixed replica: base work that arrives waits for the one optional chunk that is in flight, and for nothing else."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.scoring import Device
from ranking.consumer.task import Task
from ranking.models.inputs import CandidateChunk, Users
from schemas.records import RankingAnswer
from tests.unit.ranking.consumer_fakes import MS, NUM_FEATURES, FakeClock, base_task, optional_task

FIXED_NS, PER_CANDIDATE_NS = 100_000, 1_000
# Base task n ranks the ads from (n + 1) times this on, so that a scorer sees whose candidates it is given.
AD_STEP = 1_000_000


@dataclass
class WatchedScorer:
    """Takes fake time, and notes each call: its start, its length, and the base tasks in it (none: optional work)."""

    clock: FakeClock
    prepare_ns: int
    calls: list[tuple[int, int, frozenset[int]]] = field(default_factory=list)
    version: str = "v1"

    def prepare(self, users: Users) -> Users:
        # Base users are all ones, optional ones all zeros; they are never encoded together.
        is_base = bool(users.features_BF[0, 0])
        assert np.all(users.features_BF == is_base)
        if not is_base:
            self.calls.append((self.clock(), self.prepare_ns, frozenset()))
        self.clock.now_ns += self.prepare_ns
        return users

    def score_chunk(self, encoded: Users, chunk: CandidateChunk) -> NDArray[np.float32]:
        took_ns = FIXED_NS + PER_CANDIDATE_NS * len(chunk)
        owners = frozenset((chunk.ad_ids_N // AD_STEP - 1).tolist())
        assert owners == {-1} or -1 not in owners, "base and optional candidates in one call"
        self.calls.append((self.clock(), took_ns, owners - {-1}))
        self.clock.now_ns += took_ns
        return np.zeros(len(chunk), dtype=np.float32)


class MixedReplica:
    """A replica of both routes with optional work at hand; base work arrives on the fake clock while it runs."""

    def __init__(self, arrivals: list[tuple[int, Task]], *, call_size: int, answer_ns: int, prepare_ns: int) -> None:
        self.clock = FakeClock()
        self.scorer = WatchedScorer(self.clock, prepare_ns)
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
        self.answer_ns = answer_ns
        self.answered: list[str] = []
        self.replica = Replica(
            ReplicaEnds(
                device=Device(scorer=self.scorer), permit=Permit(None, clock_ns=self.clock), clock_ns=self.clock,
                send=self.send, peek=self.peek,
            ),
            costs=CostBook(CostPrior(fixed_ns=FIXED_NS, per_candidate_ns=PER_CANDIDATE_NS)),
            settings=ReplicaSettings(
                identity=Identity(ranker_id="mixed", epoch_ms=0),
                cell="us-east",
                routes=("baseline", "wide"),
                plan=PlanSettings(call_size=call_size, budget_ns=1_000 * MS),
            ),
        )  # fmt: skip

    def send(self, task: Task, _answer: RankingAnswer) -> None:
        self.answered.append(task.work.request_id)
        self.clock.now_ns += self.answer_ns

    def peek(self) -> list[Task]:
        arrived = [task for at_ns, task in self.arrivals if at_ns <= self.clock()]
        self.arrivals = self.arrivals[len(arrived) :]
        return arrived

    def waits(self, number: int, arrived_ns: int) -> tuple[int, int]:
        """Of one base task: optional calls that began after its arrival and before its own first call, and the time
        that it waited for optional calls. One not taken in waits for all that is left: the next batch begins with it.
        """
        start_ns = next((start_ns for start_ns, _, owners in self.scorer.calls if number in owners), self.clock() + 1)
        optional = [
            (from_ns, from_ns + took_ns)
            for from_ns, took_ns, owners in self.scorer.calls
            if not owners and from_ns < start_ns and from_ns + took_ns > arrived_ns
        ]
        return (
            sum(from_ns > arrived_ns for from_ns, _ in optional),
            sum(to_ns - max(from_ns, arrived_ns) for from_ns, to_ns in optional),
        )


def base(number: int, *, num_candidates: int, answer_by_ms: float) -> Task:
    first = (number + 1) * AD_STEP
    task: Task = base_task(
        f"b{number}",
        num_candidates=num_candidates,
        answer_by_ms=answer_by_ms,
        ad_ids=np.arange(first, first + num_candidates, dtype="<i8").tobytes(),
        user_features=np.ones(NUM_FEATURES, dtype="<f4").tobytes(),
    )
    return task


@settings(max_examples=150)
@given(
    num_chunks=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    arrivals=st.lists(
        st.tuples(st.integers(0, 12 * MS), st.integers(1, 300), st.sampled_from((-1.0, 1.0, 5.0, 100.0))),
        min_size=1,
        max_size=20,
    ),
    answer_by_ms=st.sampled_from((2.0, 8.0, 1_000.0)),
    call_size=st.sampled_from((64, 256)),
    answer_ns=st.sampled_from((0, 40_000)),
    prepare_ns=st.sampled_from((0, 150_000)),
)
def test_base_work_waits_for_one_optional_call_at_most(
    num_chunks: list[int],
    arrivals: list[tuple[int, int, float]],
    answer_by_ms: float,
    call_size: int,
    answer_ns: int,
    prepare_ns: int,
) -> None:
    tasks = [
        base(number, num_candidates=size, answer_by_ms=at_ns / MS + left_ms)
        for number, (at_ns, size, left_ms) in enumerate(arrivals)
    ]
    mixed = MixedReplica(
        [(at_ns, task) for (at_ns, _, _), task in zip(arrivals, tasks, strict=True)],
        call_size=call_size,
        answer_ns=answer_ns,
        prepare_ns=prepare_ns,
    )
    mixed.replica.run(
        [
            optional_task(f"o{number}", values=range(1, count + 1), answer_by_ms=answer_by_ms)
            for number, count in enumerate(num_chunks)
        ]
    )
    longest_ns = max(prepare_ns, FIXED_NS + PER_CANDIDATE_NS * call_size)
    for number, (at_ns, _, _) in enumerate(arrivals):
        num_begun, waited_ns = mixed.waits(number, at_ns)
        # One in flight, or one that begins while base work ahead of it or an answer is being done; never both.
        assert num_begun <= 1
        assert waited_ns <= longest_ns
    waiting = {task.work.request_id for _, task in mixed.arrivals}
    answered = [name for name in mixed.answered if name.startswith("b")]
    assert sorted(answered) == sorted({f"b{number}" for number in range(len(arrivals))} - waiting)


@pytest.mark.parametrize("num_optional", [1, 10, 100])
def test_the_wait_does_not_grow_with_the_optional_work_at_hand(num_optional: int) -> None:
    arrivals = [
        (at_ns, base(number, num_candidates=50, answer_by_ms=100))
        for number, at_ns in enumerate(range(0, 4 * MS, MS // 3))
    ]
    mixed = MixedReplica(arrivals, call_size=64, answer_ns=0, prepare_ns=0)
    mixed.replica.run(
        [optional_task(f"o{number}", values=[1] * 100, answer_by_ms=1_000) for number in range(num_optional)]
    )
    waits_ns = [mixed.waits(number, at_ns)[1] for number, (at_ns, _) in enumerate(arrivals)]
    assert max(waits_ns) <= FIXED_NS + 64 * PER_CANDIDATE_NS
