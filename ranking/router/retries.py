"""How many base retries are allowed: a share of the requests, and a burst for the moment in which a replica dies."""

import math

# Below this much history the rate is not extrapolated.
MIN_HISTORY_S = 0.25


class RateMeter:
    """Events per second, exponentially weighted: x <- x e^(-dt/tau) + 1/tau at each event.

    Divided by 1 - e^(-age/tau), so that it is right from the start and not only after a few tau.
    """

    def __init__(self, *, tau_s: float = 5.0) -> None:
        self._tau_s = tau_s
        self._sum = 0.0
        self._start_ms: float | None = None
        self._at_ms = 0.0

    def count(self, now_ms: float) -> None:
        """Note one event."""
        if self._start_ms is None:
            self._start_ms = self._at_ms = now_ms
        self._sum = self._decayed(now_ms) + 1.0 / self._tau_s
        self._at_ms = max(now_ms, self._at_ms)

    def per_s(self, now_ms: float) -> float:
        """The rate now."""
        if self._start_ms is None:
            return 0.0
        age_s = max(MIN_HISTORY_S, (now_ms - self._start_ms) / 1000.0)
        return self._decayed(now_ms) / -math.expm1(-age_s / self._tau_s)

    def _decayed(self, now_ms: float) -> float:
        return self._sum * math.exp(-max(0.0, now_ms - self._at_ms) / 1000.0 / self._tau_s)


class RetryBudget:
    """Token bucket turned round: what was spent is paid back by a share of each request.

    A retry is allowed while spent + 1 <= max(burst, requests sent in one overdue time). The second term is all work
    that can be out when a replica falls silent, so it holds at least one partition's outstanding work at any rate; a
    storm is bounded by it all the same, as it does not grow with a backlog.
    """

    def __init__(self, *, share: float, burst: int) -> None:
        self._share = share
        self._burst = burst
        self._spent = 0.0
        self._rate = RateMeter()

    def request(self, now_ms: float) -> None:
        """Note a request, which pays back its share."""
        self._rate.count(now_ms)
        self._spent = max(0.0, self._spent - self._share)

    def take(self, now_ms: float, *, overdue_ms: float) -> bool:
        """Spend one retry if the budget allows it."""
        if self._spent + 1.0 > max(self._burst, self._rate.per_s(now_ms) * overdue_ms / 1000.0):
            return False
        self._spent += 1.0
        return True
