"""What falls due when. Nothing is cancelled: whoever is woken looks whether it still matters."""

import heapq
from collections.abc import Iterator
from typing import Literal

TimerKind = Literal["overdue", "optional_due", "answer_by", "give_up", "limit"]


class Timers:
    """A heap of (time, kind, request id), in order of time and then of setting."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerKind, str]] = []
        self._num_set = 0

    def set(self, due_ms: float, kind: TimerKind, request_id: str) -> None:
        """Wake for ``kind`` of a request at ``due_ms``."""
        heapq.heappush(self._heap, (due_ms, self._num_set, kind, request_id))
        self._num_set += 1

    def due(self, now_ms: float) -> Iterator[tuple[TimerKind, str]]:
        """What is due, earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, kind, request_id = heapq.heappop(self._heap)
            yield kind, request_id

    @property
    def next_ms(self) -> float | None:
        return self._heap[0][0] if self._heap else None
