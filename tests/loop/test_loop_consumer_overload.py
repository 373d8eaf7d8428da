"""Queues in front of real replicas on a fake clock: what optional load, however much, does to what is done.

A queue holds what was appended to a topic; a replica takes what is there as soon as it is free, a room full at most, as
`ranking.consumer.waiting_room` hands it over. Time passes in the scorer alone.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook, CostPrior
from ranking.consumer.executor import OptionalCall
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.scoring import Device
from ranking.consumer.task import Task
from schemas.records import RankingAnswer
from tests.unit.ranking.consumer_fakes import MS, FakeClock, FakeGate, FakeScorer, base_task, optional_task

FIXED_NS, PER_CANDIDATE_NS, CALL_SIZE = 100_000, 5_000, 256
FULL_CALL_NS = FIXED_NS + CALL_SIZE * PER_CANDIDATE_NS
# Candidates a second in full calls.
CAPACITY_PER_S = CALL_SIZE * 1e9 / FULL_CALL_NS
NUM_CHUNKS, CHUNK_SIZE, NUM_BASE = 8, 64, 100
DEADLINE_MS = 100
ROOM = 64
DURATION_S = 1.0


def _arrivals(rate_per_s: float, *, seed: int) -> list[int]:
    """Times of a Poisson process, ns."""
    draws = np.random.default_rng(seed)
    gaps_ns = draws.exponential(1e9 / rate_per_s, size=int(rate_per_s * DURATION_S)).astype(np.int64)
    times_ns: list[int] = np.cumsum(gaps_ns).tolist()
    return times_ns


def optional_load(load: float) -> list[tuple[int, Task]]:
    """Extra candidates of ``load`` times what one replica can score; requests are of very different worth."""
    draws = np.random.default_rng(1)
    tasks = []
    for number, at_ns in enumerate(_arrivals(load * CAPACITY_PER_S / (NUM_CHUNKS * CHUNK_SIZE), seed=2)):
        worth = 1e6 * draws.lognormal()
        tasks.append((at_ns, _placed(
            optional_task(f"o{number}", values=[int(worth * 0.8**chunk) for chunk in range(NUM_CHUNKS)],
                          chunk_size=CHUNK_SIZE),
            at_ns,
        )))  # fmt: skip
    return tasks


def base_load(load: float) -> list[tuple[int, Task]]:
    """Base work of ``load`` times what one replica can score."""
    return [
        (at_ns, _placed(base_task(f"b{number}", num_candidates=NUM_BASE), at_ns))
        for number, at_ns in enumerate(_arrivals(load * CAPACITY_PER_S / NUM_BASE, seed=3))
    ]


def _placed(task: Task, at_ns: int) -> Task:
    return replace(task, arrived_ns=at_ns, taken_ns=at_ns, answer_by_ns=at_ns + DEADLINE_MS * MS)


@dataclass
class Queues:
    """One replica, and the queues of its routes: what arrived and was not yet taken."""

    arrivals: list[tuple[int, Task]]
    gate_flips_ns: tuple[int, ...] = ()
    has_gate: bool = False
    clock: FakeClock = field(default_factory=FakeClock)
    answers: list[tuple[int, Task, RankingAnswer]] = field(default_factory=list)
    calls: list[OptionalCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scorer = FakeScorer(self.clock, fixed_ns=FIXED_NS, per_candidate_ns=PER_CANDIDATE_NS)
        self.gate = FakeGate(self.clock, *self.gate_flips_ns, is_open=True) if self.has_gate else None
        self.to_come = deque(sorted(self.arrivals, key=lambda arrival: arrival[0]))
        self.waiting: dict[bool, deque[Task]] = {True: deque(), False: deque()}
        self.replica = Replica(
            ReplicaEnds(
                device=Device(scorer=self.scorer),
                permit=Permit(self.gate, clock_ns=self.clock),
                clock_ns=self.clock,
                send=lambda task, answer: self.answers.append((self.clock(), task, answer)),
                peek=lambda: self.take(is_base=True),
                on_call=self.calls.append,
            ),
            costs=CostBook(CostPrior(fixed_ns=FIXED_NS, per_candidate_ns=PER_CANDIDATE_NS)),
            settings=ReplicaSettings(
                identity=Identity(ranker_id="replica", epoch_ms=0),
                cell="us-east",
                routes=("baseline", "wide"),
                plan=PlanSettings(call_size=CALL_SIZE),
            ),
        )

    def take(self, *, is_base: bool) -> list[Task]:
        while self.to_come and self.to_come[0][0] <= self.clock():
            _, task = self.to_come.popleft()
            self.waiting[task.is_base].append(task)
        waiting = self.waiting[is_base]
        taken = [waiting.popleft() for _ in range(min(ROOM, len(waiting)))]
        return [replace(task, taken_ns=self.clock()) for task in taken]

    def run(self) -> "Queues":
        while self.to_come or any(self.waiting.values()):
            self.replica.idle()
            batch = [*self.take(is_base=True), *self.take(is_base=False)]
            if batch:
                self.replica.run(batch)
            else:
                self.clock.now_ns = max(self.clock.now_ns, self.to_come[0][0])
        return self

    @property
    def useful_per_s(self) -> float:
        """Optional candidates a second that were scored and answered in time."""
        num_scored = sum(
            task.chunk_num_candidates(chunk)
            for at_ns, task, answer in self.answers
            if not task.is_base and at_ns <= task.answer_by_ns
            for chunk in answer.scored_chunks
        )
        return num_scored / float(self.clock.now_ns / 1e9)

    @property
    def sheds(self) -> Counter[str]:
        return Counter(shed.reason for _, _, answer in self.answers for shed in answer.sheds)

    def base_latencies_ns(self) -> list[int]:
        return [at_ns - task.arrived_ns for at_ns, task, _ in self.answers if task.is_base]


@pytest.mark.parametrize("load", [1.4, 2.0, 5.0, 10.0])
def test_optional_load_beyond_capacity_costs_next_to_no_useful_work(load: float) -> None:
    queues = Queues(optional_load(load)).run()
    share = queues.useful_per_s / CAPACITY_PER_S
    print(f"\n{load:g} times capacity: useful {share:.2%} of it, sheds {dict(queues.sheds)}")
    assert len(queues.answers) == len(queues.arrivals)
    assert share >= 0.95


@pytest.mark.parametrize("load", [0.4, 0.6, 0.8])
def test_nothing_is_shed_below_four_fifths_of_capacity(load: float) -> None:
    queues = Queues(optional_load(load)).run()
    assert queues.sheds == {}
    assert len(queues.answers) == len(queues.arrivals)


@pytest.mark.parametrize("load", [1.4, 2.0, 5.0, 10.0])
def test_what_is_shed_is_worth_less_than_what_is_scored(load: float) -> None:
    queues = Queues(optional_load(load)).run()
    scored = [task.work.chunk_values_micro[c] for _, task, answer in queues.answers for c in answer.scored_chunks]
    dropped = [
        task.work.chunk_values_micro[shed.chunk]
        for _, task, answer in queues.answers
        for shed in answer.sheds
        if shed.reason == "value"
    ]
    assert np.mean(dropped) < np.mean(scored) if dropped else load < 2.0


@pytest.mark.parametrize("load", [1.4, 2.0, 5.0, 10.0])
def test_a_mixed_replica_delays_base_work_by_one_chunk_at_most_and_drops_none(load: float) -> None:
    """Half of it is base work, and the optional work is ``load`` times its capacity on top."""
    base = base_load(0.5)
    alone, mixed = Queues(base).run(), Queues([*base, *optional_load(load)]).run()
    started = {task.work.request_id for _, task, _ in mixed.answers if task.is_base}
    assert started == {task.work.request_id for _, task in base}
    assert all(answer.error == "" and not answer.sheds for _, task, answer in mixed.answers if task.is_base)
    delays_ns = mixed_delays_ns(mixed)
    ends_ns = {task.work.request_id: at_ns for at_ns, task, _ in alone.answers}
    later_ns = [at_ns - ends_ns[task.work.request_id] for at_ns, task, _ in mixed.answers if task.is_base]
    p99s_ms = [np.percentile(queues.base_latencies_ns(), 99) / 1e6 for queues in (alone, mixed)]
    print(
        f"\nload {load:g}: base work waited {max(delays_ns) / 1e6:.3f} ms for optional chunks at most; answered "
        f"{max(later_ns) / 1e6:.3f} ms later at most; p99 {p99s_ms[1]:.3f} ms, without {p99s_ms[0]:.3f} ms; "
        f"one full call {FULL_CALL_NS / 1e6} ms"
    )
    # Two that came during one chunk share a call, which ends later than the first of them would have ended alone.
    assert max(later_ns) <= FULL_CALL_NS + NUM_BASE * PER_CANDIDATE_NS
    assert p99s_ms[1] - p99s_ms[0] <= FULL_CALL_NS / 1e6
    assert max(delays_ns) <= FULL_CALL_NS


def mixed_delays_ns(queues: Queues) -> list[int]:
    """Of each base task: the time between its arrival and the start of its own scoring in which optional calls ran."""
    spans = np.array([(call.looked_ns, call.end_ns) for call in queues.calls], dtype=np.int64)
    delays = []
    for at_ns, task, _ in queues.answers:
        if task.is_base:
            overlaps = np.minimum(spans[:, 1], at_ns) - np.maximum(spans[:, 0], task.arrived_ns)
            delays.append(int(overlaps[overlaps > 0].sum()))
    return delays


def test_dedicated_replicas_answer_base_work_to_the_nanosecond_as_without_optional_load() -> None:
    """Optional work is in another queue of other replicas: base answers are those of a world without it."""
    base = base_load(0.7)
    quiet = Queues(base).run()
    dedicated = Queues(base)
    opportunistic = Queues(optional_load(2.0))
    dedicated.run()
    opportunistic.run()
    assert [(at_ns, task.work.request_id) for at_ns, task, _ in dedicated.answers] == [
        (at_ns, task.work.request_id) for at_ns, task, _ in quiet.answers
    ]
    assert sum(opportunistic.sheds.values()) > 0


@pytest.mark.parametrize("load", [0.8, 2.0, 10.0])
def test_no_optional_chunk_starts_once_the_flip_is_visible(load: float) -> None:
    draws = np.random.default_rng(5)
    flips_ns = tuple(sorted(draws.integers(0, int(DURATION_S * 1e9), size=40).tolist()))
    queues = Queues(optional_load(load), has_gate=True, gate_flips_ns=flips_ns).run()
    assert queues.gate is not None
    assert queues.calls
    assert all(queues.gate.is_open(call.looked_ns) for call in queues.calls)
    closings_ns = flips_ns[::2]
    ends_ns = np.array([call.end_ns for call in queues.calls])
    starts_ns = np.array([call.looked_ns for call in queues.calls])
    lags_ns = [int((ends_ns[(starts_ns <= flip) & (ends_ns > flip)] - flip).max(initial=0)) for flip in closings_ns]
    print(f"\nload {load:g}: flip to the end of the last chunk: longest {max(lags_ns) / 1e6:.3f} ms of {len(lags_ns)}")
    assert max(lags_ns) <= FULL_CALL_NS
    assert len(queues.answers) == len(queues.arrivals)
