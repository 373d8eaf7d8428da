"""Which offset may be committed: the lowest one not yet finished. Pure."""

from collections import deque


class OffsetTracker:
    """Progress of one partition whose records finish in any order.

    ``begin`` in the order of the log, ``finish`` in any; ``committable`` is the offset to commit: everything before it
    is finished.
    """

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._finished: set[int] = set()
        self._next: int | None = None

    def begin(self, offset: int) -> None:
        """Note a record taken in; raises ValueError when offsets do not rise."""
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} after {self._next - 1}: records are begun in the order of the log")
        self._open.append(offset)
        self._next = offset + 1

    def finish(self, offset: int) -> None:
        """Note that a record begun earlier is finished."""
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            self._finished.discard(self._open.popleft())

    @property
    def num_open(self) -> int:
        return len(self._open) - len(self._finished)

    def committable(self) -> int | None:
        """Offset before which everything is finished; None before the first record."""
        return self._open[0] if self._open else self._next
