"""Stand-ins for the ranking consumer's surroundings: a clock that moves when told, a scorer that takes fake time."""

import numpy as np

from ranking.consumer.task import Task
from schemas.records import RankingWork

MS = 1_000_000
NUM_FEATURES = 4


def _task(request_id, *, route, lever, values, chunk_size, num_candidates, answer_by_ms, arrived_ms, taken_ms, fields):
    work = RankingWork(
        **{
            "request_id": request_id,
            "attempt": 0,
            "route": route,
            "cell": "us-east",
            "lever": lever,
            "router": "router-1",
            "reply_partition": 0,
            "intake_ms": 0,
            "deadline_ms": 0,
            "user_id": "user",
            "user_features": np.zeros(NUM_FEATURES, dtype="<f4").tobytes(),
            "history_ids": b"",
            "ad_ids": np.arange(num_candidates, dtype="<i8").tobytes(),
            "bids": np.ones(num_candidates, dtype="<f4").tobytes(),
            "retrieval_scores": np.zeros(num_candidates, dtype="<f4").tobytes(),
            "first_position": 0,
            "chunk_size": chunk_size,
            "chunk_values_micro": values,
            **fields,
        }
    )
    return Task(
        work=work,
        partition=0,
        arrived_ns=int(arrived_ms * MS),
        taken_ns=int(taken_ms * MS),
        answer_by_ns=int(answer_by_ms * MS),
        num_candidates=num_candidates,
        num_chunks=len(values),
    )


def optional_task(
    request_id, *, values, answer_by_ms=100, chunk_size=64, num_candidates=None, arrived_ms=-5, taken_ms=-20, **fields
):
    """Extra candidates of one request; times in ms from the fake clock's zero."""
    return _task(
        request_id,
        route="wide",
        lever="rma",
        values=list(values),
        chunk_size=chunk_size,
        num_candidates=chunk_size * len(values) if num_candidates is None else num_candidates,
        answer_by_ms=answer_by_ms,
        arrived_ms=arrived_ms,
        taken_ms=taken_ms,
        fields=fields,
    )


def base_task(
    request_id, *, num_candidates=100, answer_by_ms=100, chunk_size=None, arrived_ms=-5, taken_ms=-20, **fields
):
    """Base candidates of one request."""
    size = num_candidates if chunk_size is None else chunk_size
    return _task(
        request_id,
        route="baseline",
        lever=None,
        values=[0] * -(-num_candidates // size),
        chunk_size=size,
        num_candidates=num_candidates,
        answer_by_ms=answer_by_ms,
        arrived_ms=arrived_ms,
        taken_ms=taken_ms,
        fields=fields,
    )


def chunk_refs(tasks):
    """Every optional chunk of the tasks."""
    return [(task, chunk) for task in tasks if not task.is_base for chunk in range(task.num_chunks)]


class FakeClock:
    """Nanoseconds that move when told."""

    def __init__(self, now_ns=0):
        self.now_ns = now_ns

    def __call__(self):
        return self.now_ns


class FakeScorer:
    """Scores a candidate as its ad id; each call takes fake time. ``fails`` says which calls raise."""

    version = "v1"

    def __init__(self, clock, *, fixed_ns=100_000, per_candidate_ns=1_000, prepare_ns=0, fails=None):
        self.clock = clock
        self.fixed_ns = fixed_ns
        self.per_candidate_ns = per_candidate_ns
        self.prepare_ns = prepare_ns
        self.fails = fails or (lambda users, ad_ids: False)
        self.num_prepared = 0
        self.calls = []

    def prepare(self, users):
        self.clock.now_ns += self.prepare_ns
        self.num_prepared += len(users.features_BF)
        return users

    def score_chunk(self, encoded, chunk):
        start_ns = self.clock.now_ns
        self.clock.now_ns += self.fixed_ns + self.per_candidate_ns * len(chunk)
        used = encoded.features_BF[np.unique(chunk.request_of_candidate_N)]
        if self.fails(used, chunk.ad_ids_N):
            raise RuntimeError("the model cannot score this")
        self.calls.append((start_ns, len(chunk)))
        return chunk.ad_ids_N.astype(np.float32)


class FakeGate:
    """Open in the spans given, by the fake clock; the generation counts the flips so far."""

    def __init__(self, clock, *flips_ns, is_open=False):
        self.clock = clock
        self.flips_ns = list(flips_ns)
        self.was_open = is_open
        self.first_generation = 1 if is_open else 0
        self.acknowledged = []
        self.lease_ended = False

    def _num_flips(self, now_ns):
        return sum(flip_ns <= now_ns for flip_ns in self.flips_ns)

    def is_open(self, now_ns=None):
        return not self.lease_ended and bool(
            (self.was_open + self._num_flips(self.clock() if now_ns is None else now_ns)) % 2
        )

    @property
    def generation(self):
        return self.first_generation + self._num_flips(self.clock())

    def acknowledge(self, generation, *, last_chunk_end_ns, drained_ns):
        self.acknowledged.append((generation, last_chunk_end_ns, drained_ns))
