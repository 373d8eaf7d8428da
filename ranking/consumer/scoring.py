"""Scoring of pieces whatever the model does: base work is tried again until something has scored it, optional work is
not.

What fails together is tried again task by task, so that one bad record takes no other with it. A base task that fails
alone is tried again, all of it:

    1. in smaller calls
    2. in smaller calls of the fallback: the model on the host's processor, or the baseline model
    3. then it is answered with the error

Memory that ran out is given back before anything else is tried, and calls stay smaller for a while.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal

import numpy as np

from ranking.callers_mistake import answer_error
from ranking.consumer.calls import ChunkScorer, E, EncodedRow, Piece, base_pieces, columns_of, users_of
from ranking.consumer.costs import CostBook, CostModel
from ranking.consumer.progress import Progress

# The device, the model, or the caller, whose user no model of this kind can take.
FailureReason = Literal["out_of_memory", "model_error", "error"]

MAX_ERROR_CHARS = 500
# A second try is made in calls of this part of a full one, and after memory ran out calls shrink by halves to it.
SMALLEST_SHARE = 8
# So many good calls, and calls may be twice as large again.
GROWS_AFTER_CALLS = 256


def is_memory_error(error: Exception) -> bool:
    """Whether the host's memory has run out; devices have errors of their own."""
    return isinstance(error, MemoryError)


@dataclass(frozen=True, kw_only=True)
class Device(Generic[E]):
    """Where work is scored. ``release`` gives memory back; ``fallback`` scores base work that ``scorer`` cannot."""

    scorer: ChunkScorer[E]
    fallback: ChunkScorer[E] | None = None
    release: Callable[[], None] = lambda: None
    is_out_of_memory: Callable[[Exception], bool] = is_memory_error


class Scoring(Generic[E]):
    """The scoring calls of one process: measured, learned from, and tried again. ``finish`` takes what is complete."""

    def __init__(
        self,
        device: Device[E],
        *,
        clock_ns: Callable[[], int],
        costs: CostBook,
        finish: Callable[[Progress], None],
        call_size: int,
        num_features: int | None,
    ) -> None:
        self._device = device
        self._scorer = device.scorer
        self._clock_ns = clock_ns
        self._costs = costs
        self._finish = finish
        self._full_size = call_size
        self._smallest = max(1, call_size // SMALLEST_SHARE)
        self._num_features = num_features
        self._num_good_calls = 0
        self._rows: dict[Progress, EncodedRow[E]] = {}
        self.call_size = call_size
        # Since when it was last asked; optional work gives way.
        self.is_memory_short = False

    @property
    def version(self) -> str:
        return self._scorer.version

    @property
    def cost(self) -> CostModel:
        """What the model is predicted to take."""
        return self._costs.of(self._scorer.version)

    @property
    def num_encoded(self) -> int:
        """Tasks whose users are held."""
        return len(self._rows)

    def encoded(self, progress: Progress) -> E | None:
        """What a task's user was encoded in; None where it is not encoded yet."""
        row = self._rows.get(progress)
        return None if row is None else row.encoded

    def forget(self, progress: Progress) -> None:
        """A task has ended: let go of its user."""
        self._rows.pop(progress, None)

    def let_go(self) -> None:
        """Let go of every user."""
        self._rows.clear()

    def encode(self, progresses: Iterable[Progress]) -> list[Progress]:
        """Encode the users of several tasks, each once; returns those to be scored, as the others have ended."""
        # Before the model meets them: one user of a wrong shape would fail the whole call.
        fitting = [progress for progress in progresses if self._fits(progress)]
        if not fitting:
            return []
        start_ns = self._clock_ns()
        try:
            encoded = self._scorer.prepare(users_of([progress.task for progress in fitting]))
        except Exception as error:  # noqa: BLE001  # a model may raise anything; base work is answered all the same
            reason = self._note_failure(error)
            if len(fitting) == 1:
                self._fail(fitting[0], reason, error)
                return []
            for progress in fitting:
                progress.is_alone = True
            return [good for progress in fitting if not progress.is_complete for good in self._encode_alone(progress)]
        elapsed_ns = self._clock_ns() - start_ns
        self.cost.observe_encoding(len(fitting), elapsed_ns)
        for row, progress in enumerate(fitting):
            self._rows[progress] = EncodedRow(encoded, row)
            progress.busy_ns += elapsed_ns // len(fitting)
        return fitting

    def score(self, call: Sequence[Piece]) -> bool:
        """Score one call; False where it failed, and then its tasks are to be scored alone, or have ended."""
        rows = [self._rows[piece.progress] for piece in call]
        num_candidates = sum(piece.num_candidates for piece in call)
        start_ns = self._clock_ns()
        try:
            scores_N = self._scorer.score_chunk(rows[0].encoded, columns_of(call, [row.row for row in rows]))
        except Exception as error:  # noqa: BLE001  # a model may raise anything; base work is answered all the same
            reason = self._note_failure(error)
            progresses = list(dict.fromkeys(piece.progress for piece in call))
            for progress in progresses:
                progress.is_alone = True
            if len(progresses) == 1:
                self._fail(progresses[0], reason, error)
            return False
        elapsed_ns = self._clock_ns() - start_ns
        self._note_success(num_candidates, elapsed_ns)
        offset = 0
        for piece in call:
            piece.progress.put(piece.start, scores_N[offset : offset + piece.num_candidates])
            piece.progress.busy_ns += elapsed_ns * piece.num_candidates // num_candidates
            offset += piece.num_candidates
        for piece in call:
            if piece.progress.is_complete:
                self._finish(piece.progress)
        return True

    def _encode_alone(self, progress: Progress) -> list[Progress]:
        # Where memory is short, optional work is about to be shed anyway.
        return [] if self.is_memory_short and not progress.task.is_base else self.encode([progress])

    def _fits(self, progress: Progress) -> bool:
        """Whether the model takes this user; a task whose user it does not take has ended."""
        num_features = len(progress.task.user_features_F())
        if self._num_features in (None, num_features):
            return True
        self._end(
            progress,
            "error",
            answer_error(f"user_features holds {num_features} values, {self.version} takes {self._num_features}"),
        )
        return False

    def _fail(self, progress: Progress, reason: FailureReason, error: Exception) -> None:
        """A task failed on its own: optional work is shed, base work tried again in every way there is."""
        if not progress.task.is_base or not self._try_again(progress):
            self._end(progress, reason, f"{type(error).__name__}: {error}")

    def _try_again(self, progress: Progress) -> bool:
        """1. smaller calls  2. smaller calls of the fallback. Whether one of them has scored the whole task."""
        for scorer in (self._scorer, self._device.fallback):  # 1, 2
            if scorer is None:
                continue
            start_ns = self._clock_ns()
            try:
                encoded = scorer.prepare(users_of([progress.task]))
                parts = [
                    scorer.score_chunk(encoded, columns_of([piece], [0]))
                    for piece in base_pieces(progress, self._smallest)
                ]
            except Exception as error:  # noqa: BLE001  # a model may raise anything; there may be another way
                self._note_failure(error)
                continue
            progress.busy_ns += self._clock_ns() - start_ns
            progress.put_all(np.concatenate(parts), model_version=scorer.version)
            self._finish(progress)
            return True
        return False

    def _end(self, progress: Progress, reason: FailureReason, error: str) -> None:
        """End a task that cannot be scored: base work is answered with the error, optional chunks are shed."""
        if progress.task.is_base:
            progress.error = error[:MAX_ERROR_CHARS]
        else:
            progress.shed_rest(reason)
        self._finish(progress)

    def _note_failure(self, error: Exception) -> FailureReason:
        self._num_good_calls = 0
        if not self._device.is_out_of_memory(error):
            return "model_error"
        self._device.release()
        self.is_memory_short = True
        self.call_size = max(self._smallest, self.call_size // 2)
        return "out_of_memory"

    def _note_success(self, num_candidates: int, elapsed_ns: int) -> None:
        self.cost.observe(num_candidates, elapsed_ns)
        self._num_good_calls += 1
        if self.call_size < self._full_size and self._num_good_calls >= GROWS_AFTER_CALLS:
            self._num_good_calls = 0
            self.call_size = min(self._full_size, 2 * self.call_size)
