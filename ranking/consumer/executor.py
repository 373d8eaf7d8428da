"""Runs a micro-batch chunk by chunk: base work first, a look at the gate and the clock before each optional chunk.

Pure control flow: scorer, clock, permit and the two ends (`peek`, `emit`) are passed in. The order within `run`:

    1. base work that is in time, earliest deadline first, in full calls; each task is answered when it is complete
    2. base work that is late, one call at a time; what arrived meanwhile and is in time goes first
    3. optional work as planned; before each call, in this order:
       a. base work that arrived meanwhile is run first, and what arrives during that: no chunk comes in between
       b. the next chunks are chosen, or the users that come next where the first of them is not encoded yet; chunks
          that cannot be in time are dropped, and tasks that would become late in this call are answered with what they
          have
       c. the permit is looked at: where it says stop, all that is left is answered as shed, at once
    Nothing lies between that look and the call. Where memory has run out, all optional work that is left is shed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol

from ranking.consumer.calls import E, Piece, base_pieces, take_call
from ranking.consumer.costs import CostBook, Rates
from ranking.consumer.permit import StopReason
from ranking.consumer.planner import Plan, PlanSettings, order_base, plan_batch
from ranking.consumer.progress import Progress
from ranking.consumer.scoring import Device, FailureReason, Scoring
from ranking.consumer.task import Task

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

    ``num_candidates`` is 0 where users were encoded ahead of their chunks.
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

    device: Device[E]
    permit: Look
    clock_ns: Callable[[], int]
    emit: Callable[[Progress], None]
    peek: Callable[[], Sequence[Task]] = lambda: ()
    on_call: Callable[[OptionalCall], None] = lambda _: None


class _Next(NamedTuple):
    """What is to be done next for optional work, and when it will have ended: users to encode, or pieces to score."""

    users: list[Progress]
    call: list[Piece]
    end_ns: float


class Executor(Generic[E]):
    """Runs micro-batches of one process, one after another."""

    def __init__(
        self, ends: Ends[E], *, costs: CostBook, settings: PlanSettings, num_features: int | None = None
    ) -> None:
        """``num_features`` is what the model takes of each user; None where any number will do."""
        self._permit = ends.permit
        self._clock_ns = ends.clock_ns
        self._emit = ends.emit
        self._peek = ends.peek
        self._on_call = ends.on_call
        self._settings = settings
        self._scoring = Scoring(
            ends.device,
            clock_ns=ends.clock_ns,
            costs=costs,
            finish=self._finish_if_complete,
            call_size=settings.call_size,
            num_features=num_features,
        )

    def rates(self) -> Rates:
        """Predicted cost of a candidate in full calls, and of a request's user."""
        return self._scoring.cost.rates(self._settings.call_size)

    def let_go(self) -> None:
        """Let go of what was encoded: no chunk of the tasks at hand will be scored any more."""
        self._scoring.let_go()

    def run(self, tasks: Sequence[Task]) -> None:
        """Run a micro-batch; every task is emitted exactly once, as are those that `peek` brought."""
        self._scoring.is_memory_short = False
        plan = plan_batch(tasks, now_ns=self._clock_ns(), rates=self.rates(), settings=self._settings)
        if not plan.kept and any(reason != "expired" for _, _, reason in plan.sheds):
            # No call, so nothing is learned: what a slow spell taught must not shut out all optional work for ever.
            self._scoring.cost.relax()
        self._run_base(plan.base)  # 1, 2
        self._run_optional(plan)  # 3
        assert not self._scoring.num_encoded, "a task was left without an end"

    def _run_base(self, tasks: Sequence[Task]) -> None:
        late: deque[Task] = deque()
        arrived: Sequence[Task] = tasks
        num_late = 0
        while arrived or late:
            ordered, num_in_time = order_base(arrived, self._clock_ns())
            late.extend(ordered[num_in_time:])
            num_late += len(ordered) - num_in_time
            if num_in_time:
                self._run_base_pieces(ordered[:num_in_time])  # 1
            elif late:
                self._run_base_pieces(self._take_late(late))  # 2
            arrived = self._peek() if late and num_late < MAX_LATE_TASKS else ()

    def _take_late(self, late: deque[Task]) -> list[Task]:
        taken = [late.popleft()]
        num_candidates = taken[0].num_candidates
        while late and num_candidates + late[0].num_candidates <= self._settings.call_size:
            num_candidates += late[0].num_candidates
            taken.append(late.popleft())
        return taken

    def _run_base_pieces(self, tasks: Sequence[Task]) -> None:
        scoring = self._scoring
        encoded = scoring.encode([Progress(task) for task in tasks])
        pieces = deque(piece for progress in encoded for piece in base_pieces(progress, scoring.call_size))
        while pieces:
            call = [piece for piece in take_call(pieces, scoring.call_size) if not piece.progress.is_complete]
            if call and not scoring.score(call):
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
        pieces = deque(Piece(by_task[task], *task.chunk_span(chunk), chunk) for task, chunk in plan.kept)
        # Latest answer-by time first, so that the next to become late is at the end.
        due = sorted(
            (progress for progress in by_task.values() if not progress.is_complete),
            key=lambda progress: -progress.task.answer_by_ns,
        )
        self._run_optional_pieces(pieces, due)

    def _run_optional_pieces(self, pieces: deque[Piece], due: list[Progress]) -> None:
        while pieces:
            while arrived := self._peek():  # a
                self._run_base(arrived)
                # Base work may come without end, and whoever wants the capacity back must not wait for that.
                stop = self._permit.look(self._clock_ns())
                if stop is not None:
                    self._shed_all(due, stop)
                    return
            now_ns = self._clock_ns()
            chosen = self._choose(pieces, now_ns)  # b
            self._answer_due(due, now_ns, chosen.end_ns)
            users = [progress for progress in chosen.users if not progress.is_complete]
            if self._scoring.is_memory_short:
                self._shed_all(due, "out_of_memory")
                return
            if not chosen.call and not users:
                continue
            looked_ns = self._clock_ns()
            stop = self._permit.look(looked_ns)  # c
            if stop is not None:
                self._shed_all(due, stop)
                return
            if users:
                self._scoring.encode(users)
                self._note_optional_call(looked_ns, 0)
            else:
                scored = self._scoring.score(chosen.call)
                self._note_optional_call(looked_ns, sum(piece.num_candidates for piece in chosen.call))
                if not scored:
                    pieces.extendleft(reversed(chosen.call))
        if self._scoring.is_memory_short:
            self._shed_all(due, "out_of_memory")

    def _choose(self, pieces: deque[Piece], now_ns: int) -> _Next:
        """The next call in plan order, or the users to encode for it; chunks that cannot be in time are dropped."""
        cost = self._scoring.cost
        while pieces:
            piece = pieces[0]
            progress = piece.progress
            if not progress.is_open(piece.chunk):
                pieces.popleft()
                continue
            is_encoded = self._scoring.encoded(progress) is not None
            end_ns = now_ns + cost.predict_ns(piece.num_candidates) + (0.0 if is_encoded else cost.encode_ns(1))
            answer_by_ns = progress.task.answer_by_ns
            if end_ns <= answer_by_ns:
                return self._grow_call(pieces, now_ns) if is_encoded else self._users_ahead(pieces, now_ns)
            pieces.popleft()
            progress.shed(piece.chunk, "expired" if answer_by_ns <= now_ns else "deadline")
            self._finish_if_complete(progress)
        return _Next([], [], float(now_ns))

    def _users_ahead(self, pieces: deque[Piece], now_ns: int) -> _Next:
        """The users that come next in plan order, as many as take no longer than a scoring call.

        Together they are cheaper than one by one, but no call of theirs may keep base work or the gate waiting longer
        than a chunk does, and the first chunk must stay in time behind it.
        """
        first, cost = pieces[0], self._scoring.cost
        left_ns = first.progress.task.answer_by_ns - now_ns - cost.predict_ns(first.num_candidates)
        limit_ns = min(left_ns, cost.predict_ns(self._settings.call_size))
        users: dict[Progress, None] = {}
        for piece in pieces:
            progress = piece.progress
            if progress in users or progress.is_complete or self._scoring.encoded(progress) is not None:
                continue
            if users and (progress.is_alone or cost.encode_ns(len(users) + 1) > limit_ns):
                break
            users[progress] = None
            if progress.is_alone:
                break
        return _Next(list(users), [], now_ns + cost.encode_ns(len(users)))

    def _grow_call(self, pieces: deque[Piece], now_ns: int) -> _Next:
        """A call of chunks whose users were encoded together, as large as may be while every chunk stays in time."""
        cost, scoring = self._scoring.cost, self._scoring
        call = [pieces.popleft()]
        first = call[0].progress
        encoded = scoring.encoded(first)
        num_candidates, limit_ns = call[0].num_candidates, first.task.answer_by_ns
        while pieces and not first.is_alone:
            piece = pieces[0]
            progress = piece.progress
            if not progress.is_open(piece.chunk):
                pieces.popleft()
                continue
            size = num_candidates + piece.num_candidates
            grown_limit_ns = min(limit_ns, progress.task.answer_by_ns)
            if (
                size > scoring.call_size
                or progress.is_alone
                or scoring.encoded(progress) is not encoded
                or now_ns + cost.predict_ns(size) > grown_limit_ns
            ):
                break
            call.append(pieces.popleft())
            num_candidates, limit_ns = size, grown_limit_ns
        return _Next([], call, now_ns + cost.predict_ns(num_candidates))

    def _answer_due(self, due: list[Progress], now_ns: int, end_ns: float) -> None:
        """Answer tasks that would be late by the end of the next call; none of them has a chunk in it."""
        while due and due[-1].task.answer_by_ns < end_ns:
            progress = due.pop()
            if not progress.is_complete:
                progress.shed_rest("expired" if progress.task.answer_by_ns <= now_ns else "deadline")
                self._finish_if_complete(progress)

    def _shed_all(self, progresses: Iterable[Progress], reason: StopReason | FailureReason) -> None:
        for progress in progresses:
            if not progress.is_complete:
                progress.shed_rest(reason)
                self._finish_if_complete(progress)

    def _finish_if_complete(self, progress: Progress) -> None:
        if progress.is_complete and not progress.is_emitted:
            progress.is_emitted = True
            self._scoring.forget(progress)
            self._emit(progress)

    def _note_optional_call(self, looked_ns: int, num_candidates: int) -> None:
        end_ns = self._clock_ns()
        self._permit.ended(end_ns)
        self._on_call(OptionalCall(looked_ns, end_ns, num_candidates))
