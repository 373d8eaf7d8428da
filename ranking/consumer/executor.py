"""Runs a micro-batch chunk by chunk: base work first, a look at the gate and the clock before each optional chunk.

Pure control flow: scorer, clock, permit and the two ends (`peek`, `emit`) are passed in. The order within `run`:

    1. base work that is in time, earliest deadline first, in full calls; each task is answered when it is complete
    2. base work that is late, one call at a time; what arrived meanwhile and is in time goes first
    3. optional work as planned; before each call, in this order:
       a. base work that arrived meanwhile is run first
       b. the next chunks are chosen; those that cannot be in time are dropped, and tasks that would become late in this
          call are answered with what they have
       c. the permit is looked at: where it says stop, all that is left is answered as shed, at once
    Nothing lies between that look and the call.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from ranking.callers_mistake import answer_error
from ranking.consumer.calls import (
    ChunkScorer,
    E,
    EncodedRow,
    Piece,
    base_pieces,
    columns_of,
    take_call,
    users_of,
)
from ranking.consumer.costs import CostBook, CostModel
from ranking.consumer.permit import StopReason
from ranking.consumer.planner import Plan, PlanSettings, order_base, plan_batch
from ranking.consumer.progress import Progress
from ranking.consumer.task import Task

MAX_ERROR_CHARS = 500
# Beyond so much late base work at hand no more is taken in: a long backlog is read batch by batch.
MAX_LATE_TASKS = 64


class Look(Protocol):
    """What the executor needs of `ranking.consumer.permit.Permit`."""

    def look(self, now_ns: int) -> StopReason | None:
        """Why optional work may not start now."""

    def ended(self, end_ns: int) -> None:
        """Note the end of an optional chunk."""


@dataclass(frozen=True, slots=True)
class OptionalCall:
    """One optional call that was made: when the permit was looked at before it, when it ended, how much it held.

    ``num_candidates`` is 0 where users were encoded ahead of the chunks.
    """

    looked_ns: int
    end_ns: int
    num_candidates: int


@dataclass(frozen=True, kw_only=True)
class Ends(Generic[E]):
    """What the executor is connected to.

    ``emit`` takes each completed task; ``peek`` returns base work that arrived meanwhile, without waiting; ``on_call``
    is told of each optional call.
    """

    scorer: ChunkScorer[E]
    permit: Look
    clock_ns: Callable[[], int]
    emit: Callable[[Progress], None]
    peek: Callable[[], Sequence[Task]] = lambda: ()
    on_call: Callable[[OptionalCall], None] = lambda _: None


class Executor(Generic[E]):
    """Runs micro-batches of one process, one after another."""

    def __init__(
        self, ends: Ends[E], *, costs: CostBook, settings: PlanSettings, num_features: int | None = None
    ) -> None:
        """``num_features`` is what the model takes of each user; None where any number will do."""
        self._scorer = ends.scorer
        self._permit = ends.permit
        self._clock_ns = ends.clock_ns
        self._emit = ends.emit
        self._peek = ends.peek
        self._on_call = ends.on_call
        self._costs = costs
        self._settings = settings
        self._num_features = num_features
        self._rows: dict[Progress, EncodedRow[E]] = {}

    def rate_ns(self) -> float:
        """Predicted cost of one candidate in full calls."""
        return self._cost().rate_ns(self._settings.call_size)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run a micro-batch; every task is emitted exactly once, as are those that `peek` brought."""
        plan = plan_batch(tasks, now_ns=self._clock_ns(), rate_ns=self.rate_ns(), settings=self._settings)
        self._run_base(plan.base)  # 1, 2
        self._run_optional(plan)  # 3
        assert not self._rows, "a task was left without an end"

    def _cost(self) -> CostModel:
        return self._costs.of(self._scorer.version)

    def _run_base(self, tasks: Sequence[Task]) -> None:
        late: deque[Task] = deque()
        arrived: Sequence[Task] = tasks
        while arrived or late:
            ordered, num_in_time = order_base(arrived, self._clock_ns())
            late.extend(ordered[num_in_time:])
            if num_in_time:
                self._run_base_pieces(ordered[:num_in_time])  # 1
            elif late:
                self._run_base_pieces(self._take_late(late))  # 2
            arrived = self._peek() if 0 < len(late) < MAX_LATE_TASKS else ()

    def _take_late(self, late: deque[Task]) -> list[Task]:
        taken = [late.popleft()]
        num_candidates = taken[0].num_candidates
        while late and num_candidates + late[0].num_candidates <= self._settings.call_size:
            num_candidates += late[0].num_candidates
            taken.append(late.popleft())
        return taken

    def _run_base_pieces(self, tasks: Sequence[Task]) -> None:
        encoded = self._encode([Progress(task) for task in tasks])
        pieces = deque(piece for progress in encoded for piece in base_pieces(progress, self._settings.call_size))
        while pieces:
            call = [piece for piece in take_call(pieces, self._settings.call_size) if not piece.progress.is_complete]
            if call and not self._score(call):
                pieces.extendleft(reversed(call))

    def _run_optional(self, plan: Plan) -> None:
        by_task = {task: Progress(task) for task, _ in plan.kept}
        by_task |= {task: Progress(task) for task, _, _ in plan.sheds if task not in by_task}
        if not by_task:
            return
        # Behind a closed gate nothing is dropped for any other reason.
        stop = self._permit.look(self._clock_ns())
        if stop is not None:
            self._shed_all(by_task.values(), stop)
            return
        for task, chunk, reason in plan.sheds:
            progress = by_task[task]
            progress.shed(chunk, reason)
            self._finish_if_complete(progress)
        # Encoding users is optional work too, and sending those answers took a while.
        looked_ns = self._clock_ns()
        stop = self._permit.look(looked_ns)
        if stop is not None:
            self._shed_all(by_task.values(), stop)
            return
        running = self._encode([progress for progress in by_task.values() if not progress.is_complete])
        if running:
            self._note_optional_call(looked_ns, 0)
        pieces = deque(Piece(by_task[task], *task.chunk_span(chunk), chunk) for task, chunk in plan.kept)
        # Latest answer-by time first, so that the next to become late is at the end.
        due = sorted(running, key=lambda progress: -progress.task.answer_by_ns)
        self._run_optional_pieces(pieces, due)

    def _run_optional_pieces(self, pieces: deque[Piece], due: list[Progress]) -> None:
        while pieces:
            self._run_base(self._peek())  # a
            now_ns = self._clock_ns()
            call, end_ns = self._choose(pieces, now_ns)  # b
            self._answer_due(due, now_ns, end_ns)
            if not call:
                return
            looked_ns = self._clock_ns()
            stop = self._permit.look(looked_ns)  # c
            if stop is not None:
                self._shed_all(due, stop)
                return
            scored = self._score(call)
            self._note_optional_call(looked_ns, sum(piece.num_candidates for piece in call))
            if not scored:
                pieces.extendleft(reversed(call))

    def _choose(self, pieces: deque[Piece], now_ns: int) -> tuple[list[Piece], float]:
        """The next call in plan order, and when it will have ended; chunks that cannot be in time are dropped.

        It grows while every chunk in it stays in time.
        """
        cost = self._cost()
        call: list[Piece] = []
        num_candidates = 0
        end_ns, limit_ns = float(now_ns), float("inf")
        while pieces:
            piece = pieces[0]
            progress = piece.progress
            if not progress.is_open(piece.chunk):
                pieces.popleft()
                continue
            size = num_candidates + piece.num_candidates
            if call and (size > self._settings.call_size or progress.is_alone or call[0].progress.is_alone):
                break
            answer_by_ns = progress.task.answer_by_ns
            grown_end_ns = now_ns + cost.predict_ns(size)
            if grown_end_ns > min(limit_ns, answer_by_ns):
                if call:
                    break
                pieces.popleft()
                progress.shed(piece.chunk, "expired" if answer_by_ns <= now_ns else "deadline")
                self._finish_if_complete(progress)
                continue
            call.append(pieces.popleft())
            num_candidates, end_ns, limit_ns = size, grown_end_ns, min(limit_ns, answer_by_ns)
        return call, end_ns

    def _answer_due(self, due: list[Progress], now_ns: int, end_ns: float) -> None:
        """Answer tasks that would be late by the end of the next call; none of them has a chunk in it."""
        while due and due[-1].task.answer_by_ns < end_ns:
            progress = due.pop()
            if not progress.is_complete:
                progress.shed_rest("expired" if progress.task.answer_by_ns <= now_ns else "deadline")
                self._finish_if_complete(progress)

    def _shed_all(self, progresses: Iterable[Progress], reason: StopReason) -> None:
        for progress in progresses:
            progress.shed_rest(reason)
            self._finish_if_complete(progress)

    def _encode(self, progresses: Sequence[Progress]) -> list[Progress]:
        """Encode the users of several tasks, each once; returns those that can be scored, as the others have failed."""
        # Before the model meets them: one user of a wrong shape would fail the whole call.
        progresses = [progress for progress in progresses if self._fits(progress)]
        if not progresses:
            return []
        try:
            encoded = self._scorer.prepare(users_of([progress.task for progress in progresses]))
        except Exception as error:  # noqa: BLE001  # a model may raise anything; base work is answered all the same
            if len(progresses) == 1:
                self._fail(progresses[0], _named(error))
                return []
            for progress in progresses:
                progress.is_alone = True
            return [good for progress in progresses for good in self._encode([progress])]
        for row, progress in enumerate(progresses):
            self._rows[progress] = EncodedRow(encoded, row)
        return list(progresses)

    def _score(self, call: list[Piece]) -> bool:
        """Score one call; False where it failed, and then its tasks are to be scored alone, or have failed."""
        rows = [self._rows[piece.progress] for piece in call]
        num_candidates = sum(piece.num_candidates for piece in call)
        start_ns = self._clock_ns()
        try:
            scores_N = self._scorer.score_chunk(rows[0].encoded, columns_of(call, [row.row for row in rows]))
        except Exception as error:  # noqa: BLE001  # a model may raise anything; base work is answered all the same
            progresses = list(dict.fromkeys(piece.progress for piece in call))
            if len(progresses) == 1:
                self._fail(progresses[0], _named(error))
            for progress in progresses:
                progress.is_alone = True
            return False
        elapsed_ns = self._clock_ns() - start_ns
        self._cost().observe(num_candidates, elapsed_ns)
        offset = 0
        for piece in call:
            piece.progress.put(piece.start, scores_N[offset : offset + piece.num_candidates])
            piece.progress.busy_ns += elapsed_ns * piece.num_candidates // num_candidates
            offset += piece.num_candidates
        for piece in call:
            self._finish_if_complete(piece.progress)
        return True

    def _fits(self, progress: Progress) -> bool:
        """Whether the model takes this user; a task whose user it does not take is failed."""
        num_features = len(progress.task.user_features_F())
        if self._num_features in (None, num_features):
            return True
        self._fail(
            progress,
            answer_error(
                f"user_features holds {num_features} values, {self._scorer.version} takes {self._num_features}"
            ),
        )
        return False

    def _fail(self, progress: Progress, error: str) -> None:
        """End a task that cannot be scored: base work is answered with the error, optional chunks are shed."""
        if progress.task.is_base:
            progress.error = error[:MAX_ERROR_CHARS]
        else:
            progress.shed_rest("error")
        self._finish_if_complete(progress)

    def _finish_if_complete(self, progress: Progress) -> None:
        if progress.is_complete and not progress.is_emitted:
            progress.is_emitted = True
            self._rows.pop(progress, None)
            self._emit(progress)

    def _note_optional_call(self, looked_ns: int, num_candidates: int) -> None:
        end_ns = self._clock_ns()
        self._permit.ended(end_ns)
        self._on_call(OptionalCall(looked_ns, end_ns, num_candidates))


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
