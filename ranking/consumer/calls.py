"""Which pieces of which tasks go into one scoring call, and what the scorer is given: ragged columns with an index.

Shape legend: B tasks whose users were encoded together, N candidates of one call.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ranking.consumer.progress import Progress
from ranking.consumer.task import Task
from ranking.models.inputs import CandidateChunk, Users

E = TypeVar("E")


class ChunkScorer(Protocol[E]):
    """What scores: `ranking.models.scorer.Scorer`, or a fake."""

    @property
    def version(self) -> str:
        """Version of the model."""

    def prepare(self, users: Users) -> E:
        """What depends on the users alone."""

    def score_chunk(self, encoded: E, chunk: CandidateChunk) -> NDArray[np.float32]:
        """Expected value of each candidate."""


class Piece(NamedTuple):
    """Candidates [start, stop) of one task; of optional work one chunk, of base work a part of any length."""

    progress: Progress
    start: int
    stop: int
    chunk: int

    @property
    def num_candidates(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class EncodedRow(Generic[E]):
    """Where a task's user is: a row of what was encoded together."""

    encoded: E
    row: int


def users_of(tasks: Sequence[Task]) -> Users:
    """The users of several tasks. Raises ValueError where their features differ in number."""
    return Users.of_requests([task.user_features_F() for task in tasks], [task.history_ids_H() for task in tasks])


def base_pieces(progress: Progress, call_size: int) -> list[Piece]:
    """A base task in parts of at most a call's size."""
    num_candidates = progress.task.num_candidates
    return [
        Piece(progress, start, min(start + call_size, num_candidates), start // progress.task.work.chunk_size)
        for start in range(0, num_candidates, call_size)
    ]


def take_call(pieces: deque[Piece], call_size: int) -> list[Piece]:
    """Remove the next call's pieces from the left: at least one, up to ``call_size`` candidates, one task if alone."""
    call = [pieces.popleft()]
    num_candidates = call[0].num_candidates
    while pieces and not call[0].progress.is_alone:
        piece = pieces[0]
        num_candidates += piece.num_candidates
        if num_candidates > call_size or piece.progress.is_alone:
            break
        call.append(pieces.popleft())
    return call


def columns_of(call: Sequence[Piece], rows: Sequence[int]) -> CandidateChunk:
    """The candidates of a call, one piece after another; ``rows`` name each piece's encoded user."""
    tasks = [piece.progress.task for piece in call]
    if len(call) == 1:
        [piece], [task] = call, tasks
        span = slice(piece.start, piece.stop)
        return CandidateChunk(
            ad_ids_N=task.ad_ids_N()[span],
            bids_N=task.bids_N()[span],
            retrieval_scores_N=task.retrieval_scores_N()[span],
            request_of_candidate_N=np.full(piece.num_candidates, rows[0], dtype=np.int64),
        )
    spans = [slice(piece.start, piece.stop) for piece in call]
    return CandidateChunk(
        ad_ids_N=np.concatenate([task.ad_ids_N()[span] for task, span in zip(tasks, spans, strict=True)]),
        bids_N=np.concatenate([task.bids_N()[span] for task, span in zip(tasks, spans, strict=True)]),
        retrieval_scores_N=np.concatenate(
            [task.retrieval_scores_N()[span] for task, span in zip(tasks, spans, strict=True)]
        ),
        request_of_candidate_N=np.repeat(np.array(rows, dtype=np.int64), [piece.num_candidates for piece in call]),
    )
