"""What happens when, on a fake clock: the one loop that a simulation turns. Knows nothing of what it drives."""

import heapq
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MS = 1_000_000
S = 1_000_000_000


class Engine:
    """Events by time in ns, those of one moment in the order in which they were set. Nothing is cancelled: whoever is
    called looks whether it still matters."""

    def __init__(self, start_ns: int) -> None:
        self.now_ns = start_ns
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._num_set = 0

    @property
    def now_ms(self) -> float:
        """The same moment in milliseconds: host and broker have one clock here."""
        return self.now_ns / MS

    def at(self, due_ns: int, happen: Callable[[T], None], what: T) -> None:
        """Call ``happen`` with ``what`` at ``due_ns``; at once, after what is set already, where that has passed."""
        heapq.heappush(self._heap, (max(due_ns, self.now_ns), self._num_set, happen, what))
        self._num_set += 1

    def run(self, until_ns: int) -> None:
        """Let happen all that is due up to and including ``until_ns``; it is ``until_ns`` then."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            self.now_ns, _, happen, what = heapq.heappop(heap)
            happen(what)
        self.now_ns = until_ns
