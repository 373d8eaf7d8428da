"""The router without Kafka: events in, actions out, all times passed in. No thread, no sleep, no clock.

All times are milliseconds of the broker's clock (`ranking.clock.BrokerClock`). A request passes through:

1. `request`: refused, answered with the caller's mistake, known already, or opened: base work is sent at once,
   optional work as arm, dose and the cell's target allow.
2. `answer` and `tick`: answers are kept until all that is wanted is in, or the answer-by time comes. Base work that
   is overdue is sent once to another owner.
3. The one result is published: at 2., or as soon as base work answers after the answer-by time, or without a ranking
   (``degraded``) once the base answer has been given up.
4. `published`: the broker has the result, its request's offset may be committed.
5. What is unanswered `account_limit_ms` after the deadline is lost, and the accounts are closed.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from ranking.callers_mistake import mistake_in
from ranking.client.cell_table import CellTable
from ranking.client.target_table import TargetTable
from ranking.router.assignment import Assignment, assignment_of
from ranking.router.base import BaseSender, take_base_answer
from ranking.router.cell_intervals import CellIntervals
from ranking.router.events import Action, Commit, Intake, PublishInterval, PublishResult, RefuseRequest, SendWork
from ranking.router.intake import mistake, refusal
from ranking.router.open_request import Item, OpenRequest
from ranking.router.opening import budget_ms_of, opened
from ranking.router.optional_answers import take_optional_answer
from ranking.router.optional_work import OptionalWork
from ranking.router.partitions import PartitionBook, WorkKey
from ranking.router.policy import RouterPolicy
from ranking.router.progress import PartitionProgress
from ranking.router.recent import RecentIds
from ranking.router.result import error_result, result_of
from ranking.router.tail import LearnedTail
from ranking.router.timers import Timers
from ranking.router.traffic import note_intake
from ranking.router.value import DepthPrior, Values
from schemas.errors import RecordError
from schemas.records import RankingAnswer, RankingRequest
from schemas.records.fields import Route

MIN_RETRY_WAIT_MS = 5.0


@dataclass(slots=True)
class _Partition:
    progress: PartitionProgress
    recent: RecentIds
    is_caught_up: bool = False


class RouterCore:
    """Decides everything that a router decides. Not thread-safe: one loop drives it."""

    def __init__(
        self,
        policy: RouterPolicy,
        *,
        router: str,
        num_partitions: dict[Route, int],
        num_request_partitions: int,
        targets: TargetTable | None = None,
        cells: CellTable | None = None,
        seed: int = 0,
    ) -> None:
        self._policy = policy
        self._router = router
        self._num_request_partitions = num_request_partitions
        self.targets = TargetTable() if targets is None else targets
        # A generator per route: what is drawn for the baseline must not depend on what is sent elsewhere.
        self._base = BaseSender(
            policy,
            router=router,
            num_partitions=num_partitions["baseline"],
            rng=random.Random(f"{seed} baseline"),
        )
        self._optional = OptionalWork(
            policy,
            router=router,
            num_partitions=num_partitions,
            seed=seed,
            values=Values(depth_prior=DepthPrior(), upgrade_prior_micro=policy.upgrade_value_micro),
        )
        self._books: dict[Route, PartitionBook] = {
            "baseline": self._base.book,
            **{name: route.book for name, route in self._optional.routes.items()},
        }
        self._intervals = CellIntervals(source=router, is_declared=(cells or CellTable()).is_declared)
        self._publishing = LearnedTail(0.99)
        self._published_at: dict[tuple[int, int], float] = {}
        self._partitions: dict[int, _Partition] = {}
        self._open: dict[str, OpenRequest] = {}
        self._timers = Timers()
        self._next_commit_ms = 0.0
        self._next_interval_ms = 0.0
        self._num_unpublished = 0
        self._is_broker_away = False
        self._broker_back_ms = 0.0
        self.num_duplicates = 0

    # Assignment

    def assign(self, partition: int, progress: PartitionProgress, *, answered: Iterable[str] = ()) -> None:
        """Own a partition from now on; ``answered`` are the ids of requests that have a result in the log."""
        assert partition not in self._partitions, "revoked before it is assigned again"
        recent = RecentIds(answered, horizon_ms=self._policy.duplicate_horizon_ms)
        self._partitions[partition] = _Partition(progress, recent)

    def surrender(self, partition: int, now_ms: float) -> list[Action]:
        """Finish with a partition: publish what has its base answer, leave the rest to the next owner.

        Follow with `release` once everything published is acknowledged.
        """
        actions: list[Action] = []
        for open_request in [entry for entry in self._open.values() if entry.partition == partition]:
            if not open_request.is_published and open_request.base_scores is not None:
                self._publish(open_request, now_ms, actions)
            self._close(open_request, now_ms)
        return actions

    def abandon(self, partition: int, now_ms: float) -> None:
        """Own a partition no longer, without a word: another owner has it already."""
        for open_request in [entry for entry in self._open.values() if entry.partition == partition]:
            self._close(open_request, now_ms)
        self.release(partition, now_ms)

    def release(self, partition: int, now_ms: float) -> list[Commit]:
        """Own a partition no longer; returns its last commit."""
        state = self._partitions.pop(partition, None)
        if state is None:
            return []
        for place in [place for place in self._published_at if place[0] == partition]:
            del self._published_at[place]
        return _commits(partition, state.progress, now_ms)

    # Events

    def broker_away(self) -> None:
        """No broker can be reached: an answer that does not come says nothing of those who owe it."""
        self._is_broker_away = True

    def broker_heard(self, now_ms: float) -> None:
        """A record or an acknowledgement has come: whoever owes an answer has its whole time from here on."""
        if not self._is_broker_away:
            return
        self._is_broker_away = False
        self._broker_back_ms = now_ms
        for open_request in self._open.values():
            if not open_request.is_published:
                self._timers.set(self._give_up_ms(open_request), "give_up", open_request.request.request_id)

    def request(self, intake: Intake, now_ms: float) -> list[Action]:
        """One record of the requests topic, in the order of the log."""
        state = self._partitions[intake.partition]
        state.progress.begin(intake.offset)
        if not state.is_caught_up and intake.offset >= state.progress.horizon:
            state.is_caught_up = True
            state.recent.caught_up(now_ms)
        error = intake.record if isinstance(intake.record, RecordError) else None
        if isinstance(intake.record, RankingRequest):
            error = refusal(
                intake,
                intake.record,
                num_partitions=self._num_request_partitions,
                skew_ms=self._policy.skew_ms,
            )
            if error is None:
                return self._believed(intake, intake.record, state, now_ms)
        assert error is not None
        return [RefuseRequest(partition=intake.partition, offset=intake.offset, error=error)]

    def answer(self, answer: RankingAnswer, now_ms: float) -> list[Action]:
        """One answer, wanted or not: each says something of its replica."""
        is_base = answer.route == "baseline"
        key: WorkKey = (answer.request_id, answer.route, answer.attempt)
        latency_ms = (self._base if is_base else self._optional).answered(answer, now_ms)
        open_request = self._open.get(answer.request_id)
        recorder = self._intervals.of(answer.cell, now_ms).route(answer.route)
        recorder.record_pressure(answer.pressure)
        if answer.model_version:
            recorder.set_model_version(answer.model_version)
        if latency_ms is not None:
            is_late = open_request is None or now_ms > open_request.wait_until_ms
            recorder.record_answer(latency_ms, is_late=is_late)
        if open_request is None:
            return []
        actions: list[Action] = []
        is_ours = key in open_request.waiting
        open_request.waiting.discard(key)
        if is_base:
            usable = take_base_answer(open_request, answer, now_ms)
            if not usable and is_ours:
                open_request.num_base_failed += 1
                # What the caller got wrong, another replica cannot put right.
                open_request.mistake = open_request.mistake or mistake_in(answer.error)
                if len(open_request.base_partitions) == 1 and not open_request.mistake:
                    self._retry(open_request, now_ms, actions)
        elif is_ours:
            closed = take_optional_answer(open_request, answer, now_ms)
            if open_request.is_published:
                self._account(open_request, closed, now_ms)
        self._advance(open_request, now_ms, actions)
        return actions

    def tick(self, now_ms: float) -> list[Action]:
        """Time has passed: overdue work, answer-by times, limits, commits and intervals that are due."""
        actions: list[Action] = []
        for kind, request_id in self._timers.due(now_ms):
            open_request = self._open.get(request_id)
            if open_request is None:
                continue
            if kind == "overdue":
                self._overdue(open_request, now_ms, actions)
            elif kind == "optional_due":
                self._optional.overdue(request_id)
            elif kind == "limit":
                self._close(open_request, now_ms)
            else:
                self._advance(open_request, now_ms, actions)
        if now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self._policy.commit_interval_ms
            actions += self.commits(now_ms)
        if now_ms >= self._next_interval_ms:
            # On multiples of the interval, so that routers report in step and windows hold whole intervals.
            self._next_interval_ms = (now_ms // self._policy.interval_ms + 1) * self._policy.interval_ms
            actions += self.intervals(now_ms)
        return actions

    def published(self, partition: int, offset: int, now_ms: float, *, results_offset: int | None = None) -> None:
        """The broker has acknowledged the result (at ``results_offset``) or the dead letter of a request."""
        sent_ms = self._published_at.pop((partition, offset), None)
        if sent_ms is not None:
            self._publishing.record(now_ms - sent_ms, now_ms)
        state = self._partitions.get(partition)
        if state is not None:
            state.progress.finish(offset, results_offset=results_offset)

    # What the loop asks

    def commits(self, now_ms: float) -> list[Commit]:
        """Commits of all partitions that have moved."""
        return [
            commit for number, state in self._partitions.items() for commit in _commits(number, state.progress, now_ms)
        ]

    def positions(self, now_ms: float) -> list[Commit]:
        """Commits of all partitions as they stand, moved or not."""
        return [
            Commit(partition=number, offset=offset, metadata=metadata)
            for number, state in self._partitions.items()
            for offset, metadata in [state.progress.position(now_ms)]
        ]

    def intervals(self, now_ms: float) -> list[Action]:
        """The interval records that end now."""
        return [PublishInterval(interval=interval) for interval in self._intervals.close_all(now_ms)]

    def is_reported(self, cell: str, now_ms: float) -> bool:
        """Whether a cell's figures are kept: it is declared, and not one too many."""
        return self._intervals.reports(cell, now_ms)

    @property
    def next_due_ms(self) -> float:
        """When `tick` must be called at the latest."""
        due = (self._next_commit_ms, self._next_interval_ms, self._timers.next_ms)
        return min(time_ms for time_ms in due if time_ms is not None)

    @property
    def num_waiting(self) -> int:
        """Requests taken in and not yet published."""
        return self._num_unpublished

    @property
    def is_full(self) -> bool:
        """Whether no more requests should be taken in for now."""
        return self._num_unpublished >= self._policy.max_open_requests

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions of the requests that are owned."""
        return frozenset(self._partitions)

    # Steps

    def _believed(self, intake: Intake, request: RankingRequest, state: _Partition, now_ms: float) -> list[Action]:
        if not state.recent.note(request.request_id, now_ms) or request.request_id in self._open:
            self.num_duplicates += 1
            state.progress.finish(intake.offset)
            return []
        recorder = self._intervals.of(request.cell, now_ms)
        is_takeover = intake.offset < state.progress.horizon
        segment = self._policy.experiment.segments.of(request)
        error = mistake(request, segment=segment, append_ms=intake.append_ms, policy=self._policy)
        if error:
            note_intake(recorder, request, assignment=Assignment(segment=segment))
            recorder.count_result(error=True)
            result = error_result(
                request, error, router=self._router, append_ms=intake.append_ms, now_ms=now_ms, takeover=is_takeover
            )
            self._published_at[(intake.partition, intake.offset)] = now_ms
            return [PublishResult(partition=intake.partition, offset=intake.offset, result=result, trace=intake.trace)]
        open_request = self._opened(intake, request, now_ms, is_takeover=is_takeover)
        recorder.route("baseline").count_work()
        actions: list[Action] = [self._base.first(open_request, now_ms)]
        self._timers.set(now_ms + open_request.overdue_ms, "overdue", request.request_id)
        self._timers.set(open_request.optional_by_ms, "answer_by", request.request_id)
        self._timers.set(open_request.answer_by_ms, "answer_by", request.request_id)
        self._timers.set(self._give_up_ms(open_request), "give_up", request.request_id)
        optional = self._assign(open_request, now_ms)
        for sent in optional:
            recorder.route(sent.route).count_work()
            self._timers.set(float(sent.work.deadline_ms), "optional_due", request.request_id)
        is_routed = any(sent.route == "powerful" for sent in optional)
        note_intake(recorder, request, assignment=open_request.assignment, is_routed=is_routed)
        return [*actions, *optional]

    def _assign(self, open_request: OpenRequest, now_ms: float) -> list[SendWork]:
        """Assign optional work by the cell's target, where one may be applied, and send it."""
        cell = open_request.request.cell
        # A cell that nobody declared has base work and nothing else: no controller answers for more.
        may_apply = self._intervals.reports(cell, now_ms) and not (
            open_request.is_takeover or self._optional.is_too_late(open_request, now_ms)
        )
        target = self.targets.valid(cell, now_ms) if may_apply else None
        open_request.assignment = assignment_of(
            open_request.request,
            target=target,
            experiment=self._policy.experiment,
            max_upgrade_candidates=self._policy.max_upgrade_candidates,
        )
        if target is None or open_request.assignment.is_aa:
            return []
        return self._optional.plan(open_request, target, now_ms)

    def _opened(self, intake: Intake, request: RankingRequest, now_ms: float, *, is_takeover: bool) -> OpenRequest:
        open_request = opened(
            intake,
            request,
            policy=self._policy,
            publishing_ms=self._publishing.value(now_ms) or 0.0,
            overdue_ms=self._base.overdue_ms(budget_ms_of(request), now_ms),
            is_takeover=is_takeover,
            now_ms=now_ms,
        )
        self._open[request.request_id] = open_request
        self._num_unpublished += 1
        self._intervals.waits(request.cell, +1)
        return open_request

    def _overdue(self, open_request: OpenRequest, now_ms: float, actions: list[Action]) -> None:
        """No base answer for too long: suspect the partition that still owes one, send the work elsewhere."""
        self._base.book.suspect((open_request.request.request_id, "baseline", 0))
        if open_request.base_scores is not None or open_request.is_published:
            return
        if len(open_request.base_partitions) == 1:
            self._retry(open_request, now_ms, actions)
        if len(open_request.base_partitions) == 1:
            # No budget, or nowhere to go: look again soon, as each request pays a share back.
            look_again_ms = now_ms + max(MIN_RETRY_WAIT_MS, open_request.overdue_ms / 8.0)
            self._timers.set(look_again_ms, "overdue", open_request.request.request_id)

    def _retry(self, open_request: OpenRequest, now_ms: float, actions: list[Action]) -> None:
        retry = self._base.again(open_request, now_ms)
        if retry is not None:
            recorder = self._intervals.of(open_request.request.cell, now_ms).route("baseline")
            recorder.count_work()
            recorder.count_retry()
            actions.append(retry)

    def _give_up_ms(self, open_request: OpenRequest) -> float:
        return max(open_request.wait_until_ms, self._broker_back_ms) + self._policy.degrade_after_ms

    def _advance(self, open_request: OpenRequest, now_ms: float, actions: list[Action]) -> None:
        """Publish if it is time, and close what is complete."""
        if not open_request.is_published:
            has_base = open_request.base_scores is not None
            is_time = now_ms >= (open_request.optional_by_ms if has_base else open_request.answer_by_ms)
            # Nothing more can come once each attempt has come back without a ranking.
            is_hopeless = open_request.num_base_failed == len(open_request.base_partitions)
            is_given_up = not self._is_broker_away and now_ms >= self._give_up_ms(open_request)
            is_wrong = bool(open_request.mistake) and is_hopeless
            if open_request.is_complete or is_given_up or is_wrong or (is_time and (has_base or is_hopeless)):
                self._publish(open_request, now_ms, actions)
        if open_request.is_ranked and not open_request.is_latency_noted:
            open_request.is_latency_noted = True
            latency_ms = open_request.last_wanted_ms - open_request.append_ms
            self._intervals.of(open_request.request.cell, now_ms).record_latency(latency_ms)
        if open_request.is_published and not open_request.waiting:
            self._close(open_request, now_ms)

    def _publish(self, open_request: OpenRequest, now_ms: float, actions: list[Action]) -> None:
        if open_request.base_scores is None:
            for lever in open_request.levers:
                lever.withdraw("shed", "no_base")
        else:
            # Another replica has ranked it all the same.
            open_request.mistake = ""
        result = result_of(open_request, router=self._router, now_ms=now_ms, keys=self._policy.keys)
        open_request.is_published = True
        self._num_unpublished -= 1
        cell = open_request.request.cell
        self._intervals.waits(cell, -1)
        is_error = result.status == "error"
        self._intervals.of(cell, now_ms).count_result(base_late=result.late and not is_error, error=is_error)
        self._account(open_request, open_request.items, now_ms)
        place = (open_request.partition, open_request.offset)
        self._published_at[place] = now_ms
        limit_ms = max(now_ms, open_request.wait_until_ms + self._policy.account_limit_ms)
        self._timers.set(limit_ms, "limit", open_request.request.request_id)
        actions.append(PublishResult(partition=place[0], offset=place[1], result=result, trace=open_request.trace))

    def _account(self, open_request: OpenRequest, items: list[Item], now_ms: float) -> None:
        for item in items:
            if item.state != "pending" and not item.is_accounted:
                self._intervals.account(open_request.request.cell, item, now_ms)

    def _close(self, open_request: OpenRequest, now_ms: float) -> None:
        """Close the accounts of a request and forget it: what is not answered by now is lost."""
        request = open_request.request
        recorder = self._intervals.of(request.cell, now_ms)
        # In the order sent: a set's own order would differ from run to run.
        for key in sorted(open_request.waiting, key=lambda key: (key[1], key[2])):
            sent_ms = self._books[key[1]].give_up(key)
            if sent_ms is not None:
                recorder.route(key[1]).record_lost(now_ms - sent_ms)
        open_request.waiting.clear()
        if not open_request.is_published:
            # Left to the next owner of the partition.
            for lever in open_request.levers:
                lever.withdraw("lost")
            self._num_unpublished -= 1
            self._intervals.waits(request.cell, -1)
        elif not open_request.is_latency_noted:
            recorder.record_latency(now_ms - open_request.append_ms)
        for item in open_request.items:
            if item.state == "pending":
                item.state = "lost"
        self._account(open_request, open_request.items, now_ms)
        del self._open[request.request_id]


def _commits(partition: int, progress: PartitionProgress, now_ms: float) -> list[Commit]:
    commit = progress.commit(now_ms)
    return [] if commit is None else [Commit(partition=partition, offset=commit[0], metadata=commit[1])]
