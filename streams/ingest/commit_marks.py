"""Where in a partition the horizon of a window starts: a few marks (offset, append time before it). Pure."""

from collections import deque


class CommitMarks:
    """Offsets at which reading can start again, some ``spacing_ms`` of append time apart.

    A mark (offset, before_ms) says that no record before ``offset`` was appended later than ``before_ms``; None says
    that no record before it counts at all.
    """

    def __init__(self, offset: int, before_ms: int | None, *, spacing_ms: int) -> None:
        self._spacing_ms = spacing_ms
        self._first: tuple[int, int | None] = (offset, before_ms)
        self._later: deque[tuple[int, int]] = deque()
        # Append time from which on the next mark is due, so that whoever asks for every record asks cheaply.
        self.due_ms = 0 if before_ms is None else before_ms + spacing_ms

    def note(self, offset: int, before_ms: int) -> None:
        """Note a record, in the order of the log, with the largest append time before it; too soon it is no mark."""
        if before_ms >= self.due_ms:
            self._later.append((offset, before_ms))
            self.due_ms = before_ms + self._spacing_ms

    def latest_before(self, horizon_ms: int) -> tuple[int, int | None]:
        """The latest mark that has every record appended at ``horizon_ms`` or later behind it.

        Horizons rise: marks that an earlier horizon has passed are forgotten. Where no mark is old enough this is the
        first one, from which on everything is known.
        """
        while self._later and self._later[0][1] < horizon_ms:
            self._first = self._later.popleft()
        return self._first
