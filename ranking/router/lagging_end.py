"""Where the results partition ended a while ago, for who must know what was answered since. Pure."""

from collections import deque

# One mark a second is fine enough for a horizon of a minute, and keeps few of them.
_MARK_EVERY_MS = 1_000.0


class LaggingEnd:
    """The end of a log as it was ``horizon_ms`` ago, but at most ``max_records`` behind the end of now.

    Before it has watched for so long it answers with where it began.
    """

    def __init__(self, start: int, *, horizon_ms: float, max_records: int) -> None:
        self._lagging = start
        self._end = start
        self._horizon_ms = horizon_ms
        self._max_records = max_records
        # (time, end) after the time; rising in both.
        self._marks: deque[tuple[float, int]] = deque()

    def note(self, end: int, now_ms: float) -> None:
        """The log ends there now, at the least."""
        self._end = max(self._end, end)
        if not self._marks or now_ms - self._marks[-1][0] >= _MARK_EVERY_MS:
            self._marks.append((now_ms, self._end))

    def value(self, now_ms: float) -> int:
        """The end as it was one horizon ago, never later than it can have been."""
        while self._marks and self._marks[0][0] <= now_ms - self._horizon_ms:
            self._lagging = self._marks.popleft()[1]
        return max(self._lagging, self._end - self._max_records)
