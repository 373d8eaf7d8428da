"""A ranking replica without its broker: micro-batches in, answers and interval records out.

What the worker drives with Kafka, tests and a simulation drive with a fake clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from ranking.consumer.answers import Identity, answer_of
from ranking.consumer.calls import E
from ranking.consumer.costs import CostBook
from ranking.consumer.executor import Ends, Executor, OptionalCall
from ranking.consumer.measures import Measures
from ranking.consumer.permit import Permit
from ranking.consumer.planner import PlanSettings
from ranking.consumer.pressure import PressureGauge
from ranking.consumer.progress import Progress
from ranking.consumer.scoring import Device
from ranking.consumer.task import Task
from schemas.records import LatencyInterval, RankingAnswer
from schemas.records.fields import Route


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """Who this replica is, for which cell it reports, which routes it serves, how it plans.

    ``num_features`` is what its model takes of each user; None where any number will do.
    """

    identity: Identity
    cell: str
    routes: tuple[Route, ...]
    plan: PlanSettings = field(default_factory=PlanSettings)
    num_features: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicaEnds(Generic[E]):
    """What a replica is connected to; ``send`` takes each answer, ``peek`` and ``on_call`` are the executor's."""

    device: Device[E]
    permit: Permit
    clock_ns: Callable[[], int]
    send: Callable[[Task, RankingAnswer], None]
    peek: Callable[[], Sequence[Task]] = lambda: ()
    on_call: Callable[[OptionalCall], None] = lambda _: None


class Replica(Generic[E]):
    """Plans, runs and answers micro-batches, and reports what it measured."""

    def __init__(self, ends: ReplicaEnds[E], *, costs: CostBook, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._scorer = ends.device.scorer
        self._permit = ends.permit
        self._clock_ns = ends.clock_ns
        self._send = ends.send
        self._peek = ends.peek
        # Base first: the order in which work will run.
        routes = sorted(settings.routes, key=lambda route: route != "baseline")
        self._gauges: dict[Route, PressureGauge] = {route: PressureGauge() for route in routes}
        self._measures = Measures(
            settings.cell,
            source=settings.identity.ranker_id,
            routes=settings.routes,
            epoch_ms=settings.identity.epoch_ms,
        )
        self._executor = Executor(
            Ends(
                device=ends.device,
                permit=ends.permit,
                clock_ns=ends.clock_ns,
                emit=self._answer,
                peek=self._take_more,
                on_call=ends.on_call,
            ),
            costs=costs,
            settings=settings.plan,
            num_features=settings.num_features,
        )

    def run(self, tasks: Sequence[Task]) -> None:
        """Answer a micro-batch, all of it. Optional work that was too late when it was taken is dropped unplanned.

        Raises whatever ``send`` raises: an answer that cannot be sent must not be taken for given.
        """
        fresh: list[Task] = []
        backlog: list[Task] = []
        for task in tasks:
            is_backlog = not task.is_base and task.answer_by_ns <= task.taken_ns
            (backlog if is_backlog else fresh).append(task)
        self._note(tasks)
        if fresh:
            self._executor.run(fresh)
        for task in backlog:
            progress = Progress(task)
            progress.shed_rest("backlog")
            self._answer(progress)

    def idle(self) -> bool:
        """Look at the gate while there is nothing to do, so that a closing is acknowledged; whether optional work may
        run."""
        return self._permit.look(self._clock_ns()) is None

    def drain(self) -> None:
        """From now on no optional work runs here."""
        self._permit.drain()

    def let_go(self) -> None:
        """Let go of what was encoded for optional chunks, as none will follow: the gate is closed, or the end near."""
        self._executor.let_go()

    def close_interval(self, now_ms: int, *, num_waiting: int, cpu_share: float) -> list[LatencyInterval]:
        """The records of the interval that ends now, broker's time."""
        pressures = {route: self._pressure(route) for route in self._gauges}
        return self._measures.close(now_ms, pressures=pressures, num_waiting=num_waiting, cpu_share=cpu_share)

    def _take_more(self) -> Sequence[Task]:
        tasks = self._peek()
        if tasks:
            self._note(tasks)
        return tasks

    def _note(self, tasks: Sequence[Task]) -> None:
        """Count work just taken in, and feel its pressure; optional work waits for all the base work at hand."""
        now_ns, rates = self._clock_ns(), self._executor.rates()
        ahead_ns = 0.0
        for route, gauge in self._gauges.items():
            mine = [task for task in tasks if task.work.route == route]
            ahead_ns += sum(rates.work_ns(task.num_candidates) for task in mine)
            gauge.observe(mine, now_ns=now_ns, ahead_ns=ahead_ns)
        for task in tasks:
            self._measures.note_taken(task)

    def _answer(self, progress: Progress) -> None:
        pressure = self._pressure(progress.task.work.route)
        version = self._scorer.version
        answer = answer_of(progress, identity=self._settings.identity, model_version=version, pressure=pressure)
        self._send(progress.task, answer)
        self._measures.note_answered(
            progress, now_ns=self._clock_ns(), model_version=answer.model_version, pressure=pressure
        )

    def _pressure(self, route: Route) -> float:
        """A closed gate means that no optional work can be met: 1 on the opportunistic routes."""
        if route != "baseline" and self._permit.is_stopped:
            return 1.0
        return self._gauges[route].value(self._clock_ns())
