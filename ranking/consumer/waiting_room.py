"""Where work waits for the replica: a thread of each route takes it in and decodes it while the batch before is scored.

    reading thread: take in ─▶ decode ─▶ put ─▶ │ room, bounded │ ─▶ take ─▶ plan, score, answer: the replica's thread

The replica never waits for a batch to fill: it takes what is there as soon as it is free, and so a batch is what came
in the time that the one before took. What is bounded is the room: beyond it work waits at the broker.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ranking.consumer.task import Task
from schemas.records.fields import Route


class WaitingRoom:
    """The hand-over between the threads that read and the one that scores; ``max_waiting`` tasks of each route."""

    def __init__(self, routes: Sequence[Route], *, max_waiting: int, clock_ns: Callable[[], int]) -> None:
        self._max_waiting = max_waiting
        self._clock_ns = clock_ns
        # Base first: the order in which a batch holds them.
        self._waiting: dict[Route, deque[Task]] = {
            route: deque() for route in sorted(routes, key=lambda route: route != "baseline")
        }
        self._failure: Exception | None = None
        self._changed = threading.Condition()

    def await_places(self, route: Route, timeout_s: float) -> int:
        """How many more of a route may come, waiting for the first of these places; 0 where none came free."""
        waiting = self._waiting[route]
        with self._changed:
            self._changed.wait_for(lambda: len(waiting) < self._max_waiting, timeout_s)
            return max(0, self._max_waiting - len(waiting))

    def put(self, route: Route, tasks: Sequence[Task]) -> None:
        """Hand work over."""
        with self._changed:
            self._waiting[route].extend(tasks)
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """A thread that reads has ended; the replica's thread raises it at its next `take`."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def clear(self, route: Route) -> int:
        """Forget what waits of a route, as it will be read again by whoever owns its partitions; returns how much."""
        with self._changed:
            num_waiting = len(self._waiting[route])
            self._waiting[route].clear()
            self._changed.notify_all()
            return num_waiting

    def take(self, timeout_s: float) -> list[Task]:
        """All that waits, as soon as anything does. Raises what `fail` was told."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or any(self._waiting.values()), timeout_s)
            if self._failure is not None:
                raise self._failure
            return [task for route in self._waiting for task in self._leave(route)]

    def take_base(self) -> list[Task]:
        """Base work that waits, without waiting for any."""
        # Asked between any two chunks: mostly there is none, and no lock is needed to see that.
        if not self._waiting.get("baseline"):
            return []
        with self._changed:
            return self._leave("baseline")

    def _leave(self, route: Route) -> list[Task]:
        """What a route has waiting, each with the moment at which it is taken: waiting here is queueing too."""
        waiting = self._waiting[route]
        now_ns = self._clock_ns()
        tasks = [replace(task, taken_ns=now_ns) for task in waiting]
        waiting.clear()
        if tasks:
            self._changed.notify_all()
        return tasks
