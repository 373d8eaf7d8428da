"""One router of a simulation: the real core, its actions carried out on the logs in memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ops.twin.requests.engine import MS, Engine
from ops.twin.requests.hops import Hops
from ops.twin.requests.routes import WorkRoute
from ranking.handover import Takeover
from ranking.router.core import RouterCore
from ranking.router.events import Action, Intake, PublishInterval, PublishResult, RefuseRequest, SendWork
from ranking.router.progress import PartitionProgress
from schemas.kafka.offsets import OffsetTracker
from schemas.records import LatencyInterval, RankingAnswer, RankingResult, RankingWork
from schemas.records.fields import Route

_NEVER_NS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class RouterEndpoints:
    """What a router is connected to. ``publish`` is told of each result at the moment it is sent; ``upgraded`` puts the
    scores of the stronger model into work, where a replica of the simulation finds its scores."""

    routes: Mapping[Route, WorkRoute]
    publish: Callable[[RankingResult], None]
    report: Callable[[LatencyInterval], None]
    upgraded: Callable[[RankingWork], RankingWork]


class RouterNode:
    """Owns some of the request partitions from the beginning to the end."""

    def __init__(
        self, core: RouterCore, engine: Engine, hops: Hops, ends: RouterEndpoints, *, partitions: Sequence[int]
    ) -> None:
        self.core = core
        self._engine = engine
        self._hops = hops
        self._ends = ends
        self._armed_ns = _NEVER_NS
        start = Takeover(start=0, floor=0, horizon=0, results_end=0)
        for partition in partitions:
            core.assign(partition, PartitionProgress(OffsetTracker(), start))
        self._arm()

    def request(self, intake: Intake) -> None:
        """A request is read."""
        self._perform(self.core.request(intake, self._engine.now_ms))
        self._arm()

    def answer(self, answer: RankingAnswer) -> None:
        """An answer is read."""
        self._perform(self.core.answer(answer, self._engine.now_ms))
        self._arm()

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if type(action) is SendWork:
                work = self._ends.upgraded(action.work) if action.route == "powerful" else action.work
                self._ends.routes[action.route].send(work, action.partition)
            elif type(action) is PublishResult:
                self._ends.publish(action.result)
                # There and back again: the append and its acknowledgement.
                self._engine.at(self._engine.now_ns + self._hops.next_ns(), self._published, action)
            elif type(action) is PublishInterval:
                self._ends.report(action.interval)
            else:
                assert type(action) is not RefuseRequest, "the simulation made a request that is refused"

    def _published(self, action: PublishResult) -> None:
        self.core.published(action.partition, action.offset, self._engine.now_ms, results_offset=action.offset)

    def _arm(self) -> None:
        # Whole milliseconds, rounded up, as the worker's loop waits.
        due_ns = math.ceil(self.core.next_due_ms) * MS
        if due_ns < self._armed_ns:
            self._armed_ns = due_ns
            self._engine.at(due_ns, self._tick, None)

    def _tick(self, _: None) -> None:
        now_ms = self._engine.now_ms
        if self._engine.now_ns < self._armed_ns:
            return
        self._armed_ns = _NEVER_NS
        if now_ms >= self.core.next_due_ms:
            self._perform(self.core.tick(now_ms))
        self._arm()
