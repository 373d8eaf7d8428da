"""How far one task has come: which chunks are scored, which were dropped and why. Every chunk ends exactly once.

Shape legend: N candidates of the task.
"""

import numpy as np
from numpy.typing import NDArray

from ranking.consumer.task import Task


class Progress:
    """A task under way; complete when it failed or each chunk was scored or shed."""

    __slots__ = (
        "_num_open",
        "_scores_N",
        "_sheds",
        "_unscored_by_chunk",
        "busy_ns",
        "error",
        "is_alone",
        "is_emitted",
        "model_version",
        "task",
    )

    def __init__(self, task: Task) -> None:
        self.task = task
        self.busy_ns = 0
        self.error = ""
        # A call that failed is repeated task by task, so that one bad record takes no other with it.
        self.is_alone = False
        self.is_emitted = False
        # Empty until another model than the replica's own has scored it.
        self.model_version = ""
        self._scores_N: NDArray[np.float32] | None = None
        self._sheds: dict[int, str] = {}
        self._start_over()

    def _start_over(self) -> None:
        task = self.task
        self._unscored_by_chunk = [task.chunk_num_candidates(chunk) for chunk in range(task.num_chunks)]
        self._num_open = task.num_candidates

    @property
    def is_complete(self) -> bool:
        return self._num_open == 0 or bool(self.error)

    @property
    def sheds(self) -> dict[int, str]:
        """Reason by dropped chunk."""
        return self._sheds

    @property
    def scored_chunks(self) -> list[int]:
        """Chunks of which every candidate was scored, rising."""
        return [chunk for chunk, unscored in enumerate(self._unscored_by_chunk) if unscored == 0]

    @property
    def num_scored(self) -> int:
        """Candidates in scored chunks."""
        if self._num_open == 0 and not self._sheds:
            return self.task.num_candidates
        return sum(self.task.chunk_num_candidates(chunk) for chunk in self.scored_chunks)

    def scores(self) -> bytes:
        """Scores of the scored chunks in their order, packed float32."""
        if self._scores_N is None:
            return b""
        if self._num_open == 0 and not self._sheds:
            return self._scores_N.astype("<f4", copy=False).tobytes()
        spans = [self.task.chunk_span(chunk) for chunk in self.scored_chunks]
        return b"".join(self._scores_N[start:stop].astype("<f4", copy=False).tobytes() for start, stop in spans)

    def put(self, start: int, scores_N: NDArray[np.float32]) -> None:
        """Take the scores of the candidates from ``start`` on; they may cross chunks."""
        if self._scores_N is None:
            self._scores_N = np.empty(self.task.num_candidates, dtype=np.float32)
        stop = start + len(scores_N)
        self._scores_N[start:stop] = scores_N
        self._num_open -= len(scores_N)
        chunk = start // self.task.work.chunk_size
        while start < stop:
            end = min(stop, self.task.chunk_span(chunk)[1])
            self._unscored_by_chunk[chunk] -= end - start
            start, chunk = end, chunk + 1

    def put_all(self, scores_N: NDArray[np.float32], *, model_version: str) -> None:
        """Take the scores of every candidate from another try, whatever was scored before: one task, one model."""
        assert not self._sheds, "base work is never shed"
        self._start_over()
        self.put(0, scores_N)
        self.model_version = model_version

    def shed(self, chunk: int, reason: str) -> None:
        """Drop a chunk that has not ended yet."""
        assert self.is_open(chunk), f"chunk {chunk} has ended before"
        self._sheds[chunk] = reason
        self._num_open -= self._unscored_by_chunk[chunk]

    def shed_rest(self, reason: str) -> None:
        """Drop every chunk that has not ended yet."""
        for chunk, unscored in enumerate(self._unscored_by_chunk):
            if unscored and chunk not in self._sheds:
                self.shed(chunk, reason)

    def is_open(self, chunk: int) -> bool:
        """Whether a chunk has not ended yet."""
        return self._unscored_by_chunk[chunk] > 0 and chunk not in self._sheds
