"""One replica of a simulation: the real planner and executor, turned as `ranking.consumer.worker` turns them.

A batch is played to its end in one go on the replica's own clock, which runs ahead of the simulation's meanwhile. What
it says on the way is an event of the moment at which it said it; one that is killed in between has not said the rest.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from ops.twin.requests.curve import ServiceCurve, TimedScorer
from ops.twin.requests.engine import MS, Engine
from ops.twin.requests.gates import RankerGate
from ranking.consumer.answers import Identity
from ranking.consumer.costs import CostBook
from ranking.consumer.executor import OptionalCall
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.replica import Replica, ReplicaEnds, ReplicaSettings
from ranking.consumer.scoring import Device
from ranking.consumer.task import IntakeLimits, Moment, Task, task_of
from ranking.consumer.warm_up import warm_up
from schemas.kafka.ranges import MAX_BATCH
from schemas.records import LatencyInterval, RankingAnswer, RankingWork
from schemas.records.fields import Route
from schemas.topics import REQUEST_PARTITIONS

# How long an idle replica behind an open gate waits before it looks at it again.
_IDLE_LOOK_NS = 5 * MS
_LIMITS = IntakeLimits(num_reply_partitions=REQUEST_PARTITIONS, margin_ms=3.0)
_PLAN = PlanSettings()


class Delivered(NamedTuple):
    """Work as a replica reads it from its partition."""

    work: RankingWork
    partition: int
    appended_ns: int


@dataclass(frozen=True, kw_only=True)
class ReplicaEndpoints:
    """What a replica is connected to: ``answer`` takes the partition of an answer and the answer as it is read there,
    ``hop_ns`` after it was sent."""

    answer: Callable[[int, RankingAnswer], None]
    hop_ns: Callable[[], int]
    report: Callable[[LatencyInterval], None]
    on_call: Callable[[str, OptionalCall], None] = lambda _name, _call: None


@dataclass(frozen=True, kw_only=True)
class ReplicaTerms:
    """Who a replica is, what it serves and how fast; ``speed`` is a factor by the time in ns.

    ``units_per_candidate`` is what a candidate costs in work units: more than one by a stronger model.
    """

    name: str
    cell: str
    route: Route
    curve: ServiceCurve
    num_features: int
    interval_ns: int
    speed: Callable[[int], float] = lambda _: 1.0
    units_per_candidate: float = 1.0


class ReplicaNode:
    """A process that serves one route, from its start to its end."""

    def __init__(
        self, terms: ReplicaTerms, engine: Engine, ends: ReplicaEndpoints, *, gate: RankerGate | None = None
    ) -> None:
        self.terms = terms
        self._engine = engine
        self._ends = ends
        self._gate = gate
        self._inbox: deque[Delivered] = deque()
        # The replica's own clock; what it does until then is done.
        self._clock_ns = engine.now_ns
        self._is_turn_set = False
        self._sent: list[tuple[int, Delivered]] = []
        self.died_ns: int | None = None
        self._is_retired = False
        costs = CostBook()
        scorer = TimedScorer(terms.curve, version=f"{terms.route}-twin", wait=self._wait)
        warm_up(
            scorer,
            costs=costs,
            clock_ns=self._now_ns,
            num_features=terms.num_features,
            call_size=_PLAN.call_size,
        )
        self._clock_ns = engine.now_ns
        self._replica: Replica[int] = Replica(
            ReplicaEnds(
                device=Device(scorer=scorer),
                permit=Permit(gate, clock_ns=self._now_ns),
                clock_ns=self._now_ns,
                send=self._send,
                on_call=partial(ends.on_call, terms.name),
            ),
            costs=costs,
            settings=ReplicaSettings(
                identity=Identity(ranker_id=terms.name, epoch_ms=engine.now_ns // MS),
                cell=terms.cell,
                routes=(terms.route,),
                plan=_PLAN,
                num_features=terms.num_features,
            ),
        )
        engine.at(engine.now_ns + terms.interval_ns, self._close_interval, None)

    def take_in(self, delivered: Delivered) -> None:
        """Read one piece of work."""
        self._inbox.append(delivered)
        self._set_turn(self._engine.now_ns)

    def look_soon(self, now_ns: int) -> None:
        """The gate was closed: one that waits idle sees it at its next look."""
        self._engine.at(now_ns + _IDLE_LOOK_NS, self._look, None)

    def kill(self) -> list[Delivered]:
        """End without a word; returns what was read and not answered, in order."""
        assert self.died_ns is None, "a replica dies once"
        now_ns = self.died_ns = self._engine.now_ns
        if self._gate is not None:
            self._gate.die(now_ns)
        unanswered = [delivered for said_ns, delivered in self._sent if said_ns >= now_ns]
        return [*unanswered, *self._inbox]

    def retire(self) -> list[Delivered]:
        """Take in no more; the batch at hand is answered. Returns what was read and not begun."""
        left = list(self._inbox)
        self._inbox.clear()
        if self._gate is not None:
            self._gate.die(self._engine.now_ns)
        self._is_retired = True
        return left

    def _set_turn(self, due_ns: int) -> None:
        if not self._is_turn_set:
            self._is_turn_set = True
            self._engine.at(max(due_ns, self._clock_ns), self._turn, None)

    def _look(self, _: None) -> None:
        self._set_turn(self._engine.now_ns)

    def _turn(self, _: None) -> None:
        """One pass of the worker's loop: the gate, a micro-batch, all of it run."""
        self._is_turn_set = False
        if self.died_ns is not None:
            return
        self._clock_ns = self._engine.now_ns
        self._replica.idle()
        inbox = self._inbox
        if not inbox:
            return
        moment = Moment(now_ns=self._clock_ns, broker_ms=self._clock_ns / MS)
        batch = [inbox.popleft() for _ in range(min(MAX_BATCH, len(inbox)))]
        route = self.terms.route
        self._sent.clear()
        self._replica.run(
            [
                task_of(
                    delivered.work,
                    route=route,
                    partition=delivered.partition,
                    append_ms=delivered.appended_ns // MS,
                    moment=moment,
                    limits=_LIMITS,
                    origin=delivered,
                )
                for delivered in batch
            ]
        )
        if inbox:
            self._set_turn(self._clock_ns)

    def _send(self, task: Task, answer: RankingAnswer) -> None:
        assert isinstance(task.origin, Delivered)
        self._sent.append((self._clock_ns, task.origin))
        said = (self._clock_ns, task.work.reply_partition, answer)
        self._engine.at(self._clock_ns + self._ends.hop_ns(), self._arrive, said)

    def _arrive(self, said: tuple[int, int, RankingAnswer]) -> None:
        said_ns, partition, answer = said
        # Killed in the middle of a batch, it never came to this.
        if self.died_ns is None or said_ns < self.died_ns:
            self._ends.answer(partition, answer)

    def _close_interval(self, _: None) -> None:
        if self.died_ns is not None or self._is_retired:
            return
        now_ns = self._engine.now_ns
        if self._clock_ns > now_ns:
            # In the middle of a batch nothing is reported.
            self._engine.at(self._clock_ns, self._close_interval, None)
            return
        self._clock_ns = now_ns
        for interval in self._replica.close_interval(now_ns // MS, num_waiting=len(self._inbox), cpu_share=0.0):
            self._ends.report(self._in_work_units(interval))
        self._engine.at(now_ns + self.terms.interval_ns, self._close_interval, None)

    def _in_work_units(self, interval: LatencyInterval) -> LatencyInterval:
        per_candidate = self.terms.units_per_candidate
        if per_candidate == 1.0:
            return interval
        routes = [replace(route, units_done=round(route.units_done * per_candidate)) for route in interval.routes]
        return replace(interval, routes=routes)

    def _now_ns(self) -> int:
        return self._clock_ns

    def _wait(self, time_ns: float) -> None:
        self._clock_ns += round(time_ns / self.terms.speed(self._clock_ns))
