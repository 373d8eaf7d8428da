"""A high quantile of recent latencies, learned as answers come."""

from schemas.histogram import ExponentialHistogram, merge


class LearnedTail:
    """Quantile ``q`` over this and the last generation of ``generation_ms``.

    None until ``min_samples`` were seen: a tail of few samples is noise. The quantile is worked out at most every
    ``refresh_ms``, as it is asked for with every request.
    """

    def __init__(
        self, q: float, *, generation_ms: float = 10_000.0, min_samples: int = 50, refresh_ms: float = 200.0
    ) -> None:
        self._q = q
        self._generation_ms = generation_ms
        self._min_samples = min_samples
        self._refresh_ms = refresh_ms
        self._current = ExponentialHistogram()
        self._previous = ExponentialHistogram()
        self._fresh_ms: list[float] = []
        self._start_ms: float | None = None
        self._value: float | None = None
        self._valid_until_ms = 0.0

    def record(self, latency_ms: float, now_ms: float) -> None:
        """Note one latency; a negative one, left by clocks that disagree, counts as 0."""
        if self._start_ms is None or now_ms - self._start_ms >= self._generation_ms:
            self._take_in()
            self._previous, self._current = self._current, ExponentialHistogram()
            self._start_ms = now_ms
        self._fresh_ms.append(max(0.0, latency_ms))

    def value(self, now_ms: float) -> float | None:
        """The quantile, in milliseconds."""
        if now_ms >= self._valid_until_ms:
            self._take_in()
            seen = merge((self._previous, self._current))
            self._value = seen.quantile(self._q) if seen.count >= self._min_samples else None
            self._valid_until_ms = now_ms + self._refresh_ms
        return self._value

    def _take_in(self) -> None:
        # All at once, for a tenth of what it costs one by one.
        self._current.record_many(self._fresh_ms)
        self._fresh_ms.clear()


def overdue_after_ms(
    tail_ms: float | None, budget_ms: float, *, factor: float, low_share: float, high_share: float
) -> float:
    """How long base work may be out before it is sent elsewhere: clamp(factor x tail, low x budget, high x budget).

    The lower bound keeps a fast fleet from retrying at every hiccup; the upper one leaves time for a second answer.
    Without a tail the upper bound holds.
    """
    high_ms = high_share * budget_ms
    if tail_ms is None:
        return high_ms
    return min(max(factor * tail_ms, low_share * budget_ms), high_ms)
