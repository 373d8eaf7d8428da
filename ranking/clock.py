"""The broker's clock, as seen from here: whoever judges a deadline corrects its own clock first."""

GENERATION_MS = 300_000


class BrokerClock:
    """Corrects this machine's clock by the smallest difference seen between receipt and append time.

    The true offset is at most that difference, as no record arrives before it is appended. The minimum is kept over
    the current and the last generation of five minutes, so that a clock that was set again is followed.
    """

    def __init__(self) -> None:
        self._current: float | None = None
        self._previous: float | None = None
        self._generation_start_ms: float | None = None

    def observe(self, *, receipt_ms: float, append_ms: float) -> None:
        """Note one record: local time of its receipt, broker's time of its append."""
        difference = receipt_ms - append_ms
        start = self._generation_start_ms
        if start is None or abs(receipt_ms - start) >= GENERATION_MS:
            self._previous, self._current = self._current, difference
            self._generation_start_ms = receipt_ms
        elif self._current is None or difference < self._current:
            self._current = difference

    @property
    def is_set(self) -> bool:
        """Whether a record was seen."""
        return self._current is not None

    @property
    def offset_ms(self) -> float:
        """How far the local clock is ahead of the broker's; 0 until a record was seen."""
        seen = [difference for difference in (self._current, self._previous) if difference is not None]
        return min(seen, default=0.0)

    def broker_ms(self, local_ms: float) -> float:
        """Local time as the broker's clock would show it."""
        return local_ms - self.offset_ms
