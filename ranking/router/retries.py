"""How many base retries are allowed: a share of the requests, and what is out in the moment in which a replica dies."""

from collections import deque

# Requests are counted by stretches of this length, so that what is kept does not grow with their rate.
STRETCH_MS = 10.0


class RecentCount:
    """Events of the last ``horizon_ms``, to a stretch of `STRETCH_MS` exactly, too many rather than too few."""

    def __init__(self, *, horizon_ms: float) -> None:
        self._horizon_ms = horizon_ms
        # (start of a stretch, events in it), oldest first.
        self._stretches: deque[list[float]] = deque()

    def count(self, now_ms: float) -> None:
        """Note one event."""
        if not self._stretches or now_ms - self._stretches[-1][0] >= STRETCH_MS:
            self._stretches.append([now_ms, 0])
            while now_ms - self._stretches[0][0] > self._horizon_ms + STRETCH_MS:
                self._stretches.popleft()
        self._stretches[-1][1] += 1

    def since(self, time_ms: float) -> int:
        """Events since a time that is within the horizon."""
        num = 0
        for start_ms, events in reversed(self._stretches):
            if start_ms + STRETCH_MS < time_ms:
                break
            num += int(events)
        return num


class RetryBudget:
    """Token bucket turned round: what was spent is paid back by a share of each request.

    A retry is allowed while spent + 1 <= max(burst, requests sent in the last two overdue times). The second term holds
    all that a replica can owe when it falls silent, at any rate: what was sent at t is asked for again one overdue time
    later, and what it owes longest was sent at most another one before t, as its partition is left from then on. It
    bounds a storm all the same, as it does not grow with a backlog.
    """

    def __init__(self, *, share: float, burst: int, max_overdue_ms: float) -> None:
        self._share = share
        self._burst = burst
        self._spent = 0.0
        self._sent = RecentCount(horizon_ms=2.0 * max_overdue_ms)

    def request(self, now_ms: float) -> None:
        """Note a request, which pays back its share."""
        self._sent.count(now_ms)
        self._spent = max(0.0, self._spent - self._share)

    def take(self, now_ms: float, *, overdue_ms: float) -> bool:
        """Spend one retry if the budget allows it."""
        if self._spent + 1.0 > max(self._burst, self._sent.since(now_ms - 2.0 * overdue_ms)):
            return False
        self._spent += 1.0
        return True
