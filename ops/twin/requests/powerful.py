"""The powerful route of a simulation, beside a router that does not send to it yet.

Who is upgraded is what the router draws (`ranking.router.upgrades`), partitions are chosen and pressure is heeded by
its own means, replicas are the real ones. What routers would report of it is added to the intervals of this one. A
result does not wait for the upgrade: it counts where the router would still have waited for it.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from ops.twin.requests.engine import MS, Engine
from ops.twin.requests.routes import WorkRoute
from ranking.client.target_table import TargetTable
from ranking.consumer.task import MAX_OPTIONAL_CHUNK
from ranking.intervals import IntervalRecorder
from ranking.router.arms import DEFAULT_ARMS, arm_of
from ranking.router.events import Intake
from ranking.router.partitions import PartitionBook, WorkKey
from ranking.router.policy import RouterPolicy
from ranking.router.pressure import Throttle
from ranking.router.upgrades import upgrade_of
from schemas.records import LatencyInterval, RankingAnswer, RankingRequest, RankingWork
from schemas.records.fields import FLOAT32_BYTES, INT64_BYTES
from schemas.segments import segment_of

# Nothing is known of what an upgrade is worth: all are worth the same.
_VALUE_MICRO = 1


@dataclass(slots=True)
class _Open:
    request: RankingRequest
    sent_ns: int
    wait_until_ms: float


@dataclass(frozen=True, kw_only=True)
class PowerfulEnds:
    """``on_sent`` is told of each request that is to be upgraded, ``on_end`` whether its upgrade came in time."""

    route: WorkRoute
    targets: TargetTable
    on_sent: Callable[[str], None]
    on_end: Callable[[str, bool], None]


class PowerfulSender:
    """One router's part of the powerful route."""

    def __init__(self, policy: RouterPolicy, engine: Engine, ends: PowerfulEnds, *, router: str, seed: int) -> None:
        self._policy = policy
        self._engine = engine
        self._ends = ends
        self._router = router
        rng = random.Random(f"{seed} powerful")
        self._book = PartitionBook(ends.route.num_partitions, rng=rng, probe_interval_ms=policy.probe_interval_ms)
        self._throttles: dict[str, Throttle] = {}
        self._recorders: dict[str, IntervalRecorder] = {}
        self._routed: dict[str, Counter[str]] = {}
        self._open: dict[str, _Open] = {}

    def request(self, intake: Intake) -> None:
        """A request was read: upgrade it where the draw says so, and tell what is not sent."""
        request = intake.record
        assert isinstance(request, RankingRequest)
        now_ms = self._engine.now_ms
        target = self._ends.targets.valid(request.cell, now_ms)
        if target is None or not (target.other_share or target.segment_shares):
            return
        segment = segment_of(request.advertiser_segment)
        arm = arm_of(request.user_id, settings=DEFAULT_ARMS)
        if not upgrade_of(request.request_id, segment=segment, arm=arm, target=target).is_assigned:
            return
        recorder = self._recorder(request.cell)
        partition = self._book.choose(now_ms)
        if partition is None:
            recorder.close_item("sbm", "shed", reason="route_silent", units=1, value_micro=_VALUE_MICRO)
            return
        throttle = self._throttles.get(self._book.owner(partition) or "")
        if throttle is not None:
            if throttle.offer(1, now_ms) < 1.0:
                recorder.close_item("sbm", "shed", reason="pressure", units=1, value_micro=_VALUE_MICRO)
                return
            throttle.sent(1)
        self._send(intake, request, partition)
        recorder.route("powerful").count_work()
        self._routed.setdefault(request.cell, Counter())[segment] += 1

    def answer(self, answer: RankingAnswer) -> None:
        """An answer of the powerful route was read."""
        now_ms = self._engine.now_ms
        is_closed = any(shed.reason == "gate_closed" for shed in answer.sheds)
        throttle = self._throttles.get(answer.ranker)
        if throttle is None:
            throttle = Throttle(knee=self._policy.pressure_knee, recovery_per_s=self._policy.recovery_per_s)
            self._throttles[answer.ranker] = throttle
        throttle.answer(1.0 if is_closed else answer.pressure, now_ms)
        sent_ms = self._book.answered(_key(answer.request_id), partition=answer.work_partition, owner=answer.ranker)
        entry = self._open.pop(answer.request_id, None)
        if sent_ms is None or entry is None:
            return
        recorder = self._recorder(answer.cell)
        is_late = now_ms > entry.wait_until_ms
        recorder.route("powerful").record_answer(now_ms - sent_ms, is_late=is_late)
        self._ends.on_end(answer.request_id, not (answer.sheds or is_late))
        if answer.sheds:
            reason = answer.sheds[0].reason
            recorder.close_item("sbm", "shed", reason=reason, units=1, value_micro=_VALUE_MICRO)
        else:
            recorder.close_item("sbm", "late" if is_late else "admitted", units=1, value_micro=_VALUE_MICRO)

    def added_to(self, interval: LatencyInterval) -> LatencyInterval:
        """The router's interval with what it would say of the powerful route."""
        recorder = self._recorders.get(interval.cell)
        if recorder is None:
            return interval
        own = recorder.close(interval.event_time_ms)
        routed = self._routed.pop(interval.cell, Counter())
        return replace(
            interval,
            routes=sorted([*interval.routes, *own.routes], key=lambda route: route.route),
            accounts=sorted([*interval.accounts, *own.accounts], key=lambda account: account.lever),
            segments=[replace(each, num_routed=routed[each.segment]) for each in interval.segments],
        )

    def _send(self, intake: Intake, request: RankingRequest, partition: int) -> None:
        now_ns = self._engine.now_ns
        budget_ms = request.deadline_ms - request.intake_ms
        wait_until_ms = intake.append_ms + self._policy.patience_share * budget_ms
        self._book.sent(_key(request.request_id), partition, self._engine.now_ms)
        self._open[request.request_id] = _Open(request, now_ns, wait_until_ms)
        num_base = request.num_base_candidates
        work = RankingWork(
            request_id=request.request_id,
            attempt=0,
            route="powerful",
            cell=request.cell,
            lever="sbm",
            router=self._router,
            reply_partition=intake.partition,
            intake_ms=request.intake_ms,
            deadline_ms=int(wait_until_ms - self._policy.optional_margin_ms),
            user_id=request.user_id,
            user_features=request.user_features,
            history_ids=request.history_ids,
            ad_ids=request.ad_ids[: num_base * INT64_BYTES],
            bids=request.bids[: num_base * FLOAT32_BYTES],
            retrieval_scores=request.retrieval_scores[: num_base * FLOAT32_BYTES],
            first_position=0,
            chunk_size=min(num_base, MAX_OPTIONAL_CHUNK),
            chunk_values_micro=[_VALUE_MICRO] * -(-num_base // MAX_OPTIONAL_CHUNK),
            platform=request.platform,
            advertiser_segment=request.advertiser_segment,
        )
        self._ends.on_sent(request.request_id)
        self._ends.route.send(work, partition)
        self._engine.at(int(work.deadline_ms) * MS, self._overdue, request.request_id)
        limit_ms = intake.append_ms + budget_ms + self._policy.account_limit_ms
        self._engine.at(round(limit_ms) * MS, self._lost, request.request_id)

    def _overdue(self, request_id: str) -> None:
        self._book.suspect(_key(request_id))

    def _lost(self, request_id: str) -> None:
        entry = self._open.pop(request_id, None)
        if entry is None:
            return
        self._book.give_up(_key(request_id))
        self._ends.on_end(request_id, False)
        recorder = self._recorder(entry.request.cell)
        recorder.route("powerful").record_lost((self._engine.now_ns - entry.sent_ns) / MS)
        recorder.close_item("sbm", "lost", units=1, value_micro=_VALUE_MICRO)

    def _recorder(self, cell: str) -> IntervalRecorder:
        recorder = self._recorders.get(cell)
        if recorder is None:
            recorder = IntervalRecorder(cell, source=self._router, part="router", epoch_ms=self._engine.now_ns // MS)
            self._recorders[cell] = recorder
        return recorder


def _key(request_id: str) -> WorkKey:
    return (request_id, "powerful", 0)
