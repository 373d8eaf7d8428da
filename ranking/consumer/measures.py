"""What a replica reports: one interval record for its own cell, and one for each other cell whose work it did. Pure.

Accounts of optional items are the router's to close; a replica reports times, counts, busy time and pressure.
"""

from collections.abc import Sequence

from ranking.consumer.progress import Progress
from ranking.consumer.task import Task
from ranking.intervals import IntervalRecorder
from schemas.records import LatencyInterval
from schemas.records.fields import Route

MAX_OTHER_CELLS = 32
FORGET_AFTER_INTERVALS = 60


class Measures:
    """Collects the intervals of one replica.

    Callers name cells, so only some are kept apart; the work of the others counts for the replica's own cell, whose
    capacity it took. One without work for a while is forgotten; when it returns, it has a later epoch.
    """

    def __init__(self, cell: str, *, source: str, routes: Sequence[Route], epoch_ms: int) -> None:
        self._cell = cell
        self._source = source
        self._routes = tuple(routes)
        self._epoch_ms = epoch_ms
        self._recorders: dict[str, IntervalRecorder] = {}
        self._num_idle: dict[str, int] = {}
        self._model_version = ""
        self.num_answers = 0
        self._of(cell)

    def note_taken(self, task: Task) -> None:
        """Note work taken from the broker."""
        route = self._of(task.work.cell).route(task.work.route)
        route.count_work()
        route.record_queue_wait((task.taken_ns - task.arrived_ns) / 1e6)

    def note_answered(self, progress: Progress, *, now_ns: int, model_version: str, pressure: float) -> None:
        """Note a complete task at the time of its answer."""
        task = progress.task
        recorder = self._of(task.work.cell)
        route = recorder.route(task.work.route)
        route.record_answer((now_ns - task.arrived_ns) / 1e6, is_late=now_ns > task.answer_by_ns)
        # A task that failed has used its time all the same.
        route.add_busy(progress.busy_ns // 1_000, 0 if progress.error else progress.num_scored)
        route.record_pressure(pressure)
        route.set_model_version(model_version)
        self._model_version = model_version
        self.num_answers += 1

    def close(
        self, now_ms: int, *, pressures: dict[Route, float], num_waiting: int, cpu_share: float
    ) -> list[LatencyInterval]:
        """The records of the interval that ends now: always one of the own cell, with every route that is served."""
        own = self._of(self._cell)
        self._epoch_ms = max(self._epoch_ms, now_ms)
        self._forget_idle()
        for name in self._routes:
            route = own.route(name)
            route.record_pressure(pressures.get(name, 0.0))
            if self._model_version:
                route.set_model_version(self._model_version)
        return [
            recorder.close(now_ms, num_waiting=num_waiting, cpu_share=cpu_share)
            if recorder is own
            else recorder.close(now_ms)
            for recorder in self._recorders.values()
            if recorder is own or not recorder.is_idle
        ]

    def _forget_idle(self) -> None:
        for cell, recorder in list(self._recorders.items()):
            self._num_idle[cell] = self._num_idle.get(cell, 0) + 1 if recorder.is_idle else 0
            if self._num_idle[cell] > FORGET_AFTER_INTERVALS and cell != self._cell:
                del self._recorders[cell], self._num_idle[cell]

    def _of(self, cell: str) -> IntervalRecorder:
        recorder = self._recorders.get(cell)
        if recorder is None and cell != self._cell and len(self._recorders) > MAX_OTHER_CELLS:
            return self._of(self._cell)
        if recorder is None:
            recorder = self._recorders[cell] = IntervalRecorder(
                cell, source=self._source, part="ranker", epoch_ms=self._epoch_ms
            )
        return recorder
