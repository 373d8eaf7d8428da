"""One piece of work as a replica holds it: the record, its times on the monotonic clock, and its columns.

Shape legend: F user features, H past ad ids, N candidates of this work.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.errors import RecordError
from schemas.records import RankingWork
from schemas.records.fields import INT64_BYTES, Route
from schemas.records.ranking import MAX_CANDIDATES

# Optional work gives way between chunks, so a chunk must stay short; base work is cut into calls whatever its chunks.
MAX_OPTIONAL_CHUNK = 1_024

_INT64 = np.dtype("<i8")
_FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Task:
    """Work with its times in ns of the monotonic clock.

    ``arrived_ns`` is the append of the record, ``taken_ns`` when it was taken from the broker, ``answer_by_ns`` the
    time by which the answer must leave this process. ``origin`` belongs to the edge that made the task: what it needs
    to answer and to commit.
    """

    work: RankingWork
    partition: int
    arrived_ns: int
    taken_ns: int
    answer_by_ns: int
    num_candidates: int
    num_chunks: int
    origin: object = None

    @property
    def is_base(self) -> bool:
        return self.work.lever is None

    def chunk_span(self, chunk: int) -> tuple[int, int]:
        """First candidate of a chunk and the one after its last."""
        start = chunk * self.work.chunk_size
        return start, min(start + self.work.chunk_size, self.num_candidates)

    def chunk_num_candidates(self, chunk: int) -> int:
        """Candidates in a chunk; the last may be shorter."""
        start, stop = self.chunk_span(chunk)
        return stop - start

    def user_features_F(self) -> NDArray[np.float32]:
        return np.frombuffer(self.work.user_features, dtype=_FLOAT32)

    def history_ids_H(self) -> NDArray[np.int64]:
        return np.frombuffer(self.work.history_ids, dtype=_INT64)

    def ad_ids_N(self) -> NDArray[np.int64]:
        return np.frombuffer(self.work.ad_ids, dtype=_INT64)

    def bids_N(self) -> NDArray[np.float32]:
        return np.frombuffer(self.work.bids, dtype=_FLOAT32)

    def retrieval_scores_N(self) -> NDArray[np.float32]:
        return np.frombuffer(self.work.retrieval_scores, dtype=_FLOAT32)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When a record was taken, on both clocks: the host's monotonic one and the broker's."""

    now_ns: int
    broker_ms: float

    def ns_at(self, broker_ms: float) -> int:
        """Monotonic time of a moment on the broker's clock."""
        return self.now_ns + int((broker_ms - self.broker_ms) * 1e6)


@dataclass(frozen=True, kw_only=True)
class IntakeLimits:
    """What a replica believes: the routes' answers topic has so many partitions; ``margin_ms`` of optional work's
    time is kept for the way back to the router."""

    num_reply_partitions: int
    margin_ms: float


def task_of(
    work: RankingWork,
    *,
    route: Route,
    partition: int,
    append_ms: int,
    moment: Moment,
    limits: IntakeLimits,
    origin: object = None,
) -> Task:
    """Task of a record read from ``route``; no array is touched. Raises RecordError where it cannot be believed."""
    num_candidates = len(work.ad_ids) // INT64_BYTES
    is_base = work.lever is None
    if work.route != route:
        raise RecordError("invalid_field", f"work for {work.route} in the topic of {route}", field="route")
    if is_base != (route == "baseline"):
        raise RecordError("invalid_field", f"lever {work.lever} on route {route}", field="lever")
    if num_candidates > MAX_CANDIDATES:
        raise RecordError("too_large", f"{num_candidates} candidates, at most {MAX_CANDIDATES}", field="ad_ids")
    if not is_base and work.chunk_size > MAX_OPTIONAL_CHUNK:
        raise RecordError("too_large", f"{work.chunk_size}, at most {MAX_OPTIONAL_CHUNK}", field="chunk_size")
    if work.reply_partition >= limits.num_reply_partitions:
        raise RecordError(
            "invalid_field",
            f"{work.reply_partition}, but the answers have {limits.num_reply_partitions} partitions",
            field="reply_partition",
        )
    margin_ms = 0.0 if is_base else limits.margin_ms
    return Task(
        work=work,
        partition=partition,
        arrived_ns=moment.ns_at(append_ms),
        taken_ns=moment.now_ns,
        answer_by_ns=moment.ns_at(work.deadline_ms - margin_ms),
        num_candidates=num_candidates,
        num_chunks=len(work.chunk_values_micro),
        origin=origin,
    )
